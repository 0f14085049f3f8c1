/* SPDX-License-Identifier: Apache-2.0 */
/* Where an answer of HTTP/1 ends (RFC 9112, 6.3), from its bytes as they come. What is no such answer has no end that could be told. */
#ifndef TPCK_RUNTIME_NETWORK_HTTP_H
#define TPCK_RUNTIME_NETWORK_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tpck_http {
	uint8_t part;    /* of the answer that comes next: http.c */
	bool bodyless;   /* the request was HEAD */
	bool chunked, counted;
	uint16_t status; /* 0: its line has not come */
	uint64_t left;   /* bytes of the body, or of a chunk */
	uint8_t used;
	char line[40];   /* how the line begins that is on its way */
};

/* Whether a request of HTTP/1 begins here. */
bool tpck_http_is_request(const void *bytes, size_t count);
/* The answer to this request comes next. */
void tpck_http_begin(struct tpck_http *http, const void *request, size_t count);
enum tpck_http_is {
	TPCK_HTTP_MORE,  /* there is more to come */
	TPCK_HTTP_WHOLE, /* it is at its end */
	TPCK_HTTP_OTHER, /* it is none, or an answer that ends as the connection does */
};
enum tpck_http_is tpck_http_feed(struct tpck_http *http, const void *bytes, size_t count);

#endif
