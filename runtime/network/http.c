/* SPDX-License-Identifier: Apache-2.0 */
/* The framing of HTTP/1. */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/network/http.h"

enum { HEAD, BODY, CHUNK_SIZE, CHUNK, CHUNK_END, TRAILER, WHOLE, OTHER };

bool tpck_http_is_request(const void *bytes, size_t count)
{
	const char *text = bytes;
	size_t method = 0;

	while (method < count && text[method] >= 'A' && text[method] <= 'Z')
		method++;
	/* A path, all of the server, or a whole address as for a proxy (RFC 9112, 3.2). */
	return method >= 3 && method <= 16 && method + 1 < count && text[method] == ' ' && memchr("/*h", text[method + 1], 3);
}

void tpck_http_begin(struct tpck_http *http, const void *request, size_t count)
{
	*http = (struct tpck_http){.part = HEAD, .bodyless = count > 5 && memcmp(request, "HEAD ", 5) == 0};
}

static bool begins(const struct tpck_http *http, const char *name)
{
	return strncasecmp(http->line, name, strlen(name)) == 0;
}

static void head_ends(struct tpck_http *http)
{
	bool none = http->bodyless || http->status == 204 || http->status == 304;

	if (http->status == 101)
		http->part = OTHER;
	else if (http->status < 200)
		http->status = 0; /* another head follows */
	else if (none || (!http->chunked && http->counted && !http->left))
		http->part = WHOLE;
	else
		http->part = http->chunked ? CHUNK_SIZE : http->counted ? BODY : OTHER;
}

/* A line without its end. */
static void line_ends(struct tpck_http *http)
{
	char *end = http->line;

	http->line[http->used] = '\0';
	if (http->part == CHUNK_SIZE) {
		http->left = strtoull(http->line, &end, 16);
		http->part = end == http->line ? OTHER : http->left ? CHUNK : TRAILER;
	} else if (http->part == CHUNK_END) {
		http->part = CHUNK_SIZE;
	} else if (http->part == TRAILER) {
		http->part = http->used ? TRAILER : WHOLE;
	} else if (!http->status) {
		if (begins(http, "HTTP/1.") && http->used >= 12)
			http->status = (uint16_t)atoi(http->line + 9);
		if (http->status < 100 || http->status > 999)
			http->part = OTHER;
	} else if (!http->used) {
		head_ends(http);
	} else if (begins(http, "content-length:")) {
		http->left = strtoull(http->line + 15, NULL, 10);
		http->counted = true;
	} else if (begins(http, "transfer-encoding:") && strcasestr(http->line + 18, "chunked")) {
		http->chunked = true;
	}
	http->used = 0;
}

enum tpck_http_is tpck_http_feed(struct tpck_http *http, const void *bytes, size_t count)
{
	const char *text = bytes;

	for (size_t at = 0; at < count && http->part != WHOLE && http->part != OTHER;) {
		size_t part = count - at < http->left ? count - at : (size_t)http->left;

		if (http->part == BODY || http->part == CHUNK) {
			http->left -= part;
			at += part;
			if (!http->left)
				http->part = http->part == BODY ? WHOLE : CHUNK_END;
		} else if (text[at++] == '\n') {
			line_ends(http);
		} else if (text[at - 1] != '\r' && http->used < sizeof http->line - 1) {
			http->line[http->used++] = text[at - 1];
		}
	}
	return http->part == WHOLE ? TPCK_HTTP_WHOLE : http->part == OTHER ? TPCK_HTTP_OTHER : TPCK_HTTP_MORE;
}
