/* SPDX-License-Identifier: Apache-2.0 */
/* Where answers of HTTP/1 end, however they come in pieces. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "runtime/network/http.h"
#include "tests/unit/store_tap.h"

/* How many bytes of the answer were taken when it was whole; 0: it never was, -1: it has no frame. Fed in pieces of so many bytes. */
static int whole_at(const char *request, const char *answer, size_t piece)
{
	struct tpck_http http;
	size_t all = strlen(answer);

	tpck_http_begin(&http, request, strlen(request));
	for (size_t at = 0; at < all; at += piece) {
		size_t count = all - at < piece ? all - at : piece;
		enum tpck_http_is is = tpck_http_feed(&http, answer + at, count);

		if (is != TPCK_HTTP_MORE)
			return is == TPCK_HTTP_OTHER ? -1 : (int)(at + count);
	}
	return 0;
}

int main(void)
{
	static const char get[] = "GET / HTTP/1.1\r\n\r\n";
	static const struct {
		const char *name, *request, *answer;
		int whole; /* 1: at its end */
	} cases[] = {
		{"a counted body", get, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 1},
		{"one that is not all there", get, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello", 0},
		{"a head without its end", get, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n", 0},
		{"an empty body, and lines that end in LF alone", get, "HTTP/1.1 200 OK\ncontent-length: 0\n\n", 1},
		{"chunks", get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n", 1},
		{"chunks with a trailer", get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nh\r\n0\r\nX: y\r\n\r\n", 1},
		{"chunks without the last one", get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", 0},
		{"chunks, and a length that does not count", get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n1\r\nh\r\n0\r\n\r\n", 1},
		{"what HEAD gets", "HEAD / HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n", 1},
		{"no content", get, "HTTP/1.1 204 No Content\r\n\r\n", 1},
		{"not modified", get, "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 1},
		{"one that is told to go on first", "POST / HTTP/1.1\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nh", 1},
		{"a header that is longer than is kept", get,
		 "HTTP/1.1 200 OK\r\nSet-Cookie: 0123456789012345678901234567890123456789012345678901234567890123456789\r\nContent-Length: 1\r\n\r\nh", 1},
		{"an end that is the connection's", get, "HTTP/1.0 200 OK\r\n\r\nhello", -1},
		{"what is none", get, "+OK\r\n", -1},
		{"another protocol from here on", get, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n", -1},
		{"a chunk of no size", get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", -1},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		int all = (int)strlen(cases[i].answer);
		bool fine = true;

		for (size_t piece = 1; piece <= 64; piece++) {
			int at = whole_at(cases[i].request, cases[i].answer, piece);

			fine &= cases[i].whole > 0 ? at == all : cases[i].whole < 0 ? at < 0 : at == 0;
		}
		tap_ok(fine, cases[i].name, "");
	}
	tap_ok(tpck_http_is_request("POST /rows HTTP/1.1\r\n", 20) && tpck_http_is_request("OPTIONS * HTTP/1.1", 18) && tpck_http_is_request("GET http://a/ HTTP/1.1", 22),
	       "requests are told", "");
	tap_ok(!tpck_http_is_request("*1\r\n$4\r\nPING\r\n", 14) && !tpck_http_is_request("SET x 1", 7) && !tpck_http_is_request("QUIT", 4) &&
	       !tpck_http_is_request("{\"a\": 1}", 8), "and what is none", "");
	return tap_done();
}
