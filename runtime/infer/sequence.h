/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file sequence.h
 * Launch sequences in files: what an engine would have been fed, read back.
 *
 * A line is a device operation: kind name grid block smem stream tid bytes dir host_us api device, tab separated. Lines
 * that begin with # are comments. A file is plain or gzip. The lines of one graph launch (the same host_us and tid, and
 * an api with GraphLaunch in it) are one operation; its identity is made from that of its first node, since profiles
 * tell neither graphs nor handles, and its nodes are to be told to the engine as if at capture.
 */
#ifndef TPCK_RUNTIME_INFER_SEQUENCE_H
#define TPCK_RUNTIME_INFER_SEQUENCE_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/infer/infer.h"

struct tpck_sequence_op {
	struct tpck_token token;
	uint64_t first, last; /**< its lines, from 0, comments not counted */
};

struct tpck_sequence_node {
	uint64_t graph;
	struct tpck_token token;
};

struct tpck_sequence {
	struct tpck_sequence_op *ops;
	size_t count, room;
	struct tpck_sequence_node *nodes;
	size_t node_count, node_room;
	uint64_t lines;
	char **names;
	size_t name_count, name_room;
	uint64_t tids[64];
	uint32_t tid_count;
};

/** Called for every line once it is taken in: a comment's text, or NULL for an operation's. */
typedef void (*tpck_sequence_line)(void *context, const struct tpck_sequence *sequence, const char *comment);

/** Reads a whole file; `line` may be NULL. 0 or -errno, with the file, the line and what is wrong with it in err.
 * Either way the caller frees. */
int tpck_sequence_read(struct tpck_sequence *sequence, const char *path, tpck_sequence_line line, void *context,
		       struct tpck_error *err);
/** The same of bytes in memory, which are not compressed; the name is for messages. */
int tpck_sequence_parse(struct tpck_sequence *sequence, const char *bytes, size_t size, const char *name, struct tpck_error *err);
void tpck_sequence_free(struct tpck_sequence *sequence);

/** Tells an engine of all nodes of graphs. */
void tpck_sequence_tell_nodes(const struct tpck_sequence *sequence, struct tpck_infer *infer);

#endif
