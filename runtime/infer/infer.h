/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file infer.h
 * Where iterations end and where the optimizer phase begins, read off the sequence of device operations.
 *
 * Two witnesses look at the same operations, and a third one at memory (see persistent.h), once it is asked to. The names witness knows optimizer kernels by the words of their names.
 * The pattern witness never looks at a name: it looks for a run of launches, one a tensor, that comes once a period,
 * whose functions are seen nowhere else (or which opens a thread's turn, right after another thread's), and whose
 * grids stay the same while other grids may change. Each may be switched off. What either takes for the optimizer's
 * launches goes to the same tracker of phases, which learns the launches of a phase, what comes before and after it,
 * and after how many phases (two optimizers in turn) an iteration is over.
 *
 * Rule: a wrong boundary is worse than none. Nothing is announced before the tracker has seen the same phase twice
 * (names) or the pattern has agreed with itself for three to five periods; where the two name different places, nothing is
 * announced until one of them has been right about itself for several periods.
 *
 * Causal: a verdict depends on what was fed so far only. An iteration's end is announced once, either after its last
 * operation (BOUNDARY_AFTER, once the phase is known) or at the first operation behind the phase (BOUNDARY_BEFORE).
 * Not thread-safe: the caller feeds one sequence, in the order in which the operations were enqueued. What is
 * captured into a graph is not fed but told by tpck_infer_graph_node(); launching the graph is one operation.
 *
 * Memory is bounded: see TPCK_INFER_HISTORY and TPCK_INFER_FUNCTIONS.
 */
#ifndef TPCK_RUNTIME_INFER_INFER_H
#define TPCK_RUNTIME_INFER_INFER_H

#include <stdbool.h>
#include <stdint.h>

enum {
	TPCK_INFER_HISTORY = 1 << 17,   /**< operations that the pattern witness looks back on while it learns */
	TPCK_INFER_FUNCTIONS = 1 << 14, /**< functions told apart; those beyond are taken for ordinary kernels */
};

enum tpck_op {
	TPCK_OP_KERNEL,
	TPCK_OP_H2D,
	TPCK_OP_D2H,
	TPCK_OP_D2D,
	TPCK_OP_MEMSET,
	TPCK_OP_GRAPH,
	TPCK_OP_COLLECTIVE,
};

/** One device operation as the application enqueued it. */
struct tpck_token {
	uint64_t func;        /**< identity of the function or graph, stable in the process; 0 for copies and sets */
	const char *name;     /**< may be NULL; valid as long as the engine */
	void **memo;          /**< NULL, or where an engine keeps what it knows of func: NULL at first, of one engine and func */
	uint32_t grid[3];     /**< of a graph: the number of its nodes in grid[0], 0 if unknown */
	uint32_t block[3];
	uint32_t smem;
	uint32_t param_bytes; /**< size of all parameters; 0 if unknown */
	uint32_t stream;      /**< ordinal */
	uint32_t thread;      /**< ordinal of the host thread */
	uint64_t bytes;       /**< copies and sets */
	enum tpck_op op;
};

/** Flags. */
enum tpck_verdict {
	TPCK_V_NONE = 0,
	TPCK_V_BOUNDARY_BEFORE = 1, /**< the iteration ended before this operation */
	TPCK_V_OPT_BEGIN = 2,       /**< this operation is the first of an optimizer phase */
	TPCK_V_BOUNDARY_AFTER = 4,  /**< the iteration ends right after this operation */
	TPCK_V_LISTS = 8,           /**< a launch of an optimizer, or on lists of tensors while an optimizer phase is open */
	TPCK_V_LOOK = 16,           /**< digests are wanted of memory that persists, as it is before this operation */
};

enum tpck_witness { TPCK_W_NAMES = 1, TPCK_W_PATTERN = 2 };

struct tpck_infer_options {
	bool use_names;
	bool use_pattern;
	bool no_shortcut; /**< for tests: every operation goes the long way */
};

struct tpck_infer_summary {
	uint64_t ops;             /**< operations fed */
	uint64_t short_ops;       /**< of them, those that could not matter and were taken in at little cost */
	uint64_t uploads;         /**< of them, copies from the host to the device */
	uint64_t iterations;      /**< boundaries announced */
	uint64_t period;          /**< operations between the last two of them; 0 before */
	uint64_t sure_since;      /**< the operation (from 0) since which boundaries are announced; ops if not sure */
	uint32_t optimizer_ops;   /**< launches of the optimizer in the last iteration */
	uint32_t unknown_layouts; /**< optimizer functions whose parameter size is not that of a known layout */
	unsigned witnesses;       /**< enum tpck_witness: who stands behind the last boundary */
	bool sure;
	double confidence;        /**< 0 to 1 */
	char reason[200];         /**< why not sure, or on what the answer rests */
};

struct tpck_infer;

/** NULL if there is no memory. NULL options: both witnesses. */
struct tpck_infer *tpck_infer_new(const struct tpck_infer_options *options);
void tpck_infer_free(struct tpck_infer *infer);

/** Returns flags of enum tpck_verdict. */
unsigned tpck_infer_feed(struct tpck_infer *infer, const struct tpck_token *token);

/** A node of a graph, told when it is captured or added: a graph with an optimizer's launch in it is a phase. */
void tpck_infer_graph_node(struct tpck_infer *infer, uint64_t graph, const struct tpck_token *node);

/** Has the memory witness learn, where the pattern may be used: once. It gives the digests that TPCK_V_LOOK asks for. NULL: it does not. */
struct tpck_persistent *tpck_infer_watch(struct tpck_infer *infer);

void tpck_infer_summary(const struct tpck_infer *infer, struct tpck_infer_summary *summary);

/** A few lines for people: what each witness sees. Belongs to the engine and lasts until the next call. */
const char *tpck_infer_explain(struct tpck_infer *infer);

#endif
