/* SPDX-License-Identifier: Apache-2.0 */
/* Launch sequences in files. */
#include "config.h"

#include "runtime/infer/sequence.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { LINE_MAX_BYTES = 1 << 16, FIELDS = 12, FIELDS_NEEDED = 11 };
enum field { KIND, NAME, GRID, BLOCK, SMEM, STREAM, TID, BYTES, DIR, HOST_US, API };

/* A file being read. */
struct reader {
	struct tpck_sequence *s;
	const char *path;
	uint64_t line; /* from 1 */
	struct tpck_error *err;
	const char *recent[4096]; /* names by their digest: they repeat */
	/* the graph launch that the last operation is, "" if none */
	char graph_us[32], graph_tid[32];
};

static int without_memory(struct reader *r)
{
	return tpck_error_set(r->err, ENOMEM, "reading %s", r->path);
}

static int wrong(struct reader *r, const char *what)
{
	return tpck_error_set(r->err, 0, "%s:%" PRIu64 ": %s", r->path, r->line, what);
}

static void *grow(void *array, size_t count, size_t *room, size_t size)
{
	void *grown;
	if (count < *room)
		return array;
	grown = reallocarray(array, *room ? 2 * *room : 1024, size);
	if (grown)
		*room = *room ? 2 * *room : 1024;
	return grown;
}

#define GROW(array, count, room)                                  \
	__extension__({                                               \
		void *grown_ = grow(array, count, &(room), sizeof *array); \
		if (grown_)                                               \
			(array) = grown_;                                     \
		grown_ != NULL;                                           \
	})

static uint64_t text_digest(const char *text)
{
	uint64_t digest = 14695981039346656037ull;
	for (; *text; text++)
		digest = (digest ^ (unsigned char)*text) * 1099511628211ull;
	return digest;
}

/* From 1, as the threads of a process are counted. */
static uint32_t thread_ordinal(struct tpck_sequence *s, uint64_t tid)
{
	const uint32_t most = sizeof s->tids / sizeof *s->tids;
	for (uint32_t i = 0; i < s->tid_count; i++)
		if (s->tids[i] == tid)
			return i + 1;
	if (s->tid_count < most)
		s->tids[s->tid_count++] = tid;
	return s->tid_count;
}

static const char *intern(struct reader *r, const char *text, uint64_t digest)
{
	struct tpck_sequence *s = r->s;
	const char **slot = &r->recent[digest % (sizeof r->recent / sizeof *r->recent)];
	if (*slot && strcmp(*slot, text) == 0)
		return *slot;
	if (!GROW(s->names, s->name_count, s->name_room))
		return NULL;
	s->names[s->name_count] = strdup(text);
	*slot = s->names[s->name_count];
	s->name_count += *slot != NULL;
	return *slot;
}

static void read_triple(const char *text, uint32_t to[3])
{
	to[0] = to[1] = to[2] = 0;
	sscanf(text, "%" SCNu32 ",%" SCNu32 ",%" SCNu32, &to[0], &to[1], &to[2]);
}

/* -1: not an operation. */
static int operation(char *const *field)
{
	if (strcmp(field[KIND], "graph") == 0)
		return TPCK_OP_GRAPH;
	if (strcmp(field[KIND], "memset") == 0)
		return TPCK_OP_MEMSET;
	if (strcmp(field[KIND], "memcpy") == 0)
		return strcmp(field[DIR], "HtoD") == 0 ? TPCK_OP_H2D : strcmp(field[DIR], "DtoH") == 0 ? TPCK_OP_D2H : TPCK_OP_D2D;
	if (strcmp(field[KIND], "kernel") != 0)
		return -1;
	return strstr(field[NAME], "nccl") ? TPCK_OP_COLLECTIVE : TPCK_OP_KERNEL;
}

static int make_token(struct reader *r, char *const *field, struct tpck_token *token)
{
	int op = operation(field);
	if (op < 0)
		return wrong(r, "the first field is none of kernel, memcpy, memset, graph");
	token->op = (enum tpck_op)op;
	token->thread = thread_ordinal(r->s, strtoull(field[TID], NULL, 10));
	token->stream = (uint32_t)strtoul(field[STREAM], NULL, 10);
	token->bytes = strtoull(field[BYTES], NULL, 10);
	if (op == TPCK_OP_KERNEL || op == TPCK_OP_GRAPH || op == TPCK_OP_COLLECTIVE) {
		token->func = text_digest(field[NAME]);
		token->name = intern(r, field[NAME], token->func);
		if (!token->name)
			return without_memory(r);
		read_triple(field[GRID], token->grid);
		read_triple(field[BLOCK], token->block);
		token->smem = (uint32_t)strtoul(field[SMEM], NULL, 10);
	}
	if (op == TPCK_OP_GRAPH) {
		const char *count = strstr(field[NAME], "nodes=");
		token->name = NULL;
		token->grid[0] = count ? (uint32_t)strtoul(count + 6, NULL, 10) : 0;
	}
	return 0;
}

static int add_op(struct reader *r, const struct tpck_token *token)
{
	struct tpck_sequence *s = r->s;
	if (!GROW(s->ops, s->count, s->room))
		return without_memory(r);
	s->ops[s->count++] = (struct tpck_sequence_op){*token, s->lines, s->lines};
	return 0;
}

/* A node of a graph launch: of the one before it, or the first of another. */
static int add_node(struct reader *r, char *const *field, const struct tpck_token *token)
{
	struct tpck_sequence *s = r->s;
	bool same = r->graph_us[0] && strcmp(r->graph_us, field[HOST_US]) == 0 && strcmp(r->graph_tid, field[TID]) == 0;
	uint64_t id = same ? s->ops[s->count - 1].token.func : ~token->func;
	struct tpck_token graph = {
		.op = TPCK_OP_GRAPH, .thread = token->thread, .stream = token->stream, .grid = {1, 0, 0}, .func = id};
	if (!GROW(s->nodes, s->node_count, s->node_room))
		return without_memory(r);
	s->nodes[s->node_count++] = (struct tpck_sequence_node){id, *token};
	if (same) {
		s->ops[s->count - 1].token.grid[0]++;
		s->ops[s->count - 1].last = s->lines;
		return 0;
	}
	snprintf(r->graph_us, sizeof r->graph_us, "%s", field[HOST_US]);
	snprintf(r->graph_tid, sizeof r->graph_tid, "%s", field[TID]);
	return add_op(r, &graph);
}

static int add_line(struct reader *r, char *line)
{
	struct tpck_token token = {0};
	char *field[FIELDS] = {0};
	int rc;
	for (int i = 0; i < FIELDS && line; i++)
		field[i] = strsep(&line, "\t");
	if (!field[FIELDS_NEEDED - 1])
		return wrong(r, "fewer than 11 fields (kind name grid block smem stream tid bytes dir host_us api, tab separated)");
	rc = make_token(r, field, &token);
	if (rc)
		return rc;
	if (token.op != TPCK_OP_GRAPH && strstr(field[API], "GraphLaunch")) {
		rc = add_node(r, field, &token);
	} else {
		r->graph_us[0] = '\0';
		rc = add_op(r, &token);
	}
	r->s->lines++;
	return rc;
}

/* Takes one line in, with its newline or, the last one, without; `text` is changed. */
static int take_line(struct reader *r, char *text, tpck_sequence_line line, void *context)
{
	size_t length = strcspn(text, "\n");
	int rc = 0;
	r->line++;
	if (!text[length] && length == LINE_MAX_BYTES - 1)
		rc = wrong(r, "line of more than 65534 bytes");
	text[length] = '\0';
	if (!rc && text[0] && text[0] != '#')
		rc = add_line(r, text);
	if (!rc && line && text[0])
		line(context, r->s, text[0] == '#' ? text : NULL);
	return rc;
}

int tpck_sequence_read(struct tpck_sequence *s, const char *path, tpck_sequence_line line, void *context,
		       struct tpck_error *err)
{
	struct reader *r = calloc(1, sizeof *r);
	char *text = malloc(LINE_MAX_BYTES);
	gzFile file = gzopen(path, "rb");
	int rc = 0, code;
	memset(s, 0, sizeof *s);
	if (!file || !r || !text)
		rc = tpck_error_set(err, errno ? errno : ENOMEM, "reading %s", path);
	else
		*r = (struct reader){.s = s, .path = path, .err = err};
	while (!rc && gzgets(file, text, LINE_MAX_BYTES))
		rc = take_line(r, text, line, context);
	/* A file that is cut short also ends in the middle of a line: that is the consequence. */
	if (file && (gzerror(file, &code), code < 0))
		rc = code == Z_ERRNO ? tpck_error_set(err, errno, "reading %s", path)
				     : tpck_error_set(err, 0, "reading %s: it is cut short or damaged", path);
	if (file)
		gzclose(file);
	free(text);
	free(r);
	return rc;
}

int tpck_sequence_parse(struct tpck_sequence *s, const char *bytes, size_t size, const char *name, struct tpck_error *err)
{
	struct reader *r = calloc(1, sizeof *r);
	char *text = malloc(LINE_MAX_BYTES);
	int rc = 0;
	memset(s, 0, sizeof *s);
	if (!r || !text)
		rc = tpck_error_set(err, ENOMEM, "reading %s", name);
	else
		*r = (struct reader){.s = s, .path = name, .err = err};
	for (size_t at = 0, length; !rc && at < size; at += length) {
		const char *end = memchr(bytes + at, '\n', size - at);
		length = end ? (size_t)(end + 1 - bytes) - at : size - at;
		if (length >= LINE_MAX_BYTES)
			length = LINE_MAX_BYTES - 1;
		memcpy(text, bytes + at, length);
		text[length] = '\0';
		rc = take_line(r, text, NULL, NULL);
	}
	free(text);
	free(r);
	return rc;
}

void tpck_sequence_free(struct tpck_sequence *s)
{
	for (size_t i = 0; i < s->name_count; i++)
		free(s->names[i]);
	free(s->names);
	free(s->ops);
	free(s->nodes);
	memset(s, 0, sizeof *s);
}

void tpck_sequence_tell_nodes(const struct tpck_sequence *s, struct tpck_infer *infer)
{
	for (size_t i = 0; i < s->node_count; i++)
		tpck_infer_graph_node(infer, s->nodes[i].graph, &s->nodes[i].token);
}
