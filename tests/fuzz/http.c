/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of HTTP/1. An input is a request, its line's end, and what comes back: in one piece, and byte by byte, it ends at the same place. */
#include "config.h"

#include "tests/fuzz/fuzz.h"

#include "runtime/network/http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *end = memchr(data, '\n', size), *answer = end ? end + 1 : data;
	size_t count = size - (size_t)(answer - data);
	enum tpck_http_is all, is = TPCK_HTTP_MORE;
	struct tpck_http whole, pieces;

	(void)tpck_http_is_request(data, size);
	tpck_http_begin(&whole, data, (size_t)(answer - data));
	tpck_http_begin(&pieces, data, (size_t)(answer - data));
	all = tpck_http_feed(&whole, answer, count);
	for (size_t i = 0; i < count; i++) {
		uint8_t *one = malloc(1);

		*one = answer[i];
		is = tpck_http_feed(&pieces, one, 1);
		free(one);
	}
	FUZZ_HOLDS(count == 0 || is == all);
	return 0;
}
