/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Feeds launch sequences from files to the inference engine and compares its boundaries with the truth in the files.
 *
 *   infer_traces [--no-names] [--no-pattern] [--may-miss] [--explain] [--boundaries] FILE...
 *
 * The truth is in comments: `# iteration-end N` stands where an iteration ended.
 *
 * One line of result a file: operations, iterations, how many of their ends were found, boundaries at wrong places,
 * the iteration from which on all were found, the operation from which on it was sure, optimizer windows told at their very first kernel (from the fourth on),
 * time an operation. An end that only the operation behind it could betray is not counted at the end of a file.
 * Exit 1 if a boundary is wrong, or if, with both witnesses, one is missed from the fourth iteration on and they may not.
 *
 * A boundary is right between the end of the iteration's optimizer and the first operation of the next step, where the
 * file marks steps; elsewhere only right behind the optimizer. Gradients cleared there may be on either side.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/infer/infer.h"
#include "runtime/infer/sequence.h"

struct truth {
	uint64_t from, to; /* operations before which the boundary may stand */
	uint64_t found;
};

struct sequence {
	struct tpck_sequence ops;
	size_t *begins; /* first kernels of optimizer windows */
	size_t begin_count, begin_room;
	struct truth *truths;
	size_t truth_count, truth_room;
	bool waiting, clearing, opening; /* what the comments so far announce */
	size_t seen;
};

static void *grow(void *array, size_t count, size_t *room, size_t size)
{
	if (count < *room)
		return array;
	*room = *room ? 2 * *room : 1024;
	array = realloc(array, *room * size);
	if (!array)
		abort();
	return array;
}

/* A file that ends with an iteration: what is behind the optimizer is no next step's. */
static void take_end(struct sequence *s)
{
	if (s->waiting && s->truth_count)
		s->truths[s->truth_count - 1].to = s->ops.count;
}

static void take_comment(struct sequence *s, const char *line)
{
	struct truth *last = s->truth_count ? &s->truths[s->truth_count - 1] : NULL;
	size_t count = s->ops.count;
	if (strncmp(line, "# iteration-end", 15) == 0) {
		s->truths = grow(s->truths, s->truth_count, &s->truth_room, sizeof *s->truths);
		s->truths[s->truth_count++] = (struct truth){count, count, UINT64_MAX};
		s->waiting = true;
	} else if (strncmp(line, "# step", 6) == 0 && strstr(line, "begin")) {
		if (s->waiting && last)
			last->to = count;
		s->waiting = false;
	} else if (strncmp(line, "# optimizer begin", 17) == 0) {
		s->opening = !strstr(line, "captured") && !strstr(line, "closure");
	} else if (strncmp(line, "# optimizer end", 15) == 0) {
		s->opening = false;
	} else if (strncmp(line, "# zero_grad begin", 17) == 0) {
		s->clearing = s->waiting && last && last->to == count;
	} else if (strncmp(line, "# zero_grad end", 15) == 0) {
		if (s->clearing)
			last->to = count;
		s->clearing = false;
	}
}

static void take_line(void *context, const struct tpck_sequence *ops, const char *comment)
{
	struct sequence *s = context;
	if (comment) {
		take_comment(s, comment);
	} else if (s->opening && ops->count > s->seen && ops->ops[ops->count - 1].token.op == TPCK_OP_KERNEL) {
		s->begins = grow(s->begins, s->begin_count, &s->begin_room, sizeof *s->begins);
		s->begins[s->begin_count++] = ops->count - 1;
		s->opening = false;
	}
	s->seen = ops->count;
}

static void free_sequence(struct sequence *s)
{
	tpck_sequence_free(&s->ops);
	free(s->begins);
	free(s->truths);
}

struct score {
	size_t found, wrong, late; /* late: missed from the fourth on */
	size_t begins, begun;      /* optimizer windows from the fourth on, and how many were told at their first kernel */
	long first;                /* all found from this one on, or -1 */
	uint64_t sure;             /* the operation behind the first end that was told */
};

static void mark(struct sequence *s, uint64_t at, struct score *score, bool show)
{
	for (size_t i = 0; i < s->truth_count; i++)
		if (at >= s->truths[i].from && at <= s->truths[i].to && s->truths[i].found == UINT64_MAX) {
			s->truths[i].found = at;
			score->found++;
			return;
		}
	score->wrong++;
	if (show)
		printf("  wrong boundary before operation %" PRIu64 "\n", at);
}

static struct score run(struct sequence *s, const struct tpck_infer_options *options, bool show, bool explain, double *ns)
{
	struct tpck_infer *infer = tpck_infer_new(options);
	struct score score = {.first = -1};
	struct timespec t0, t1;
	unsigned char *verdicts = calloc(s->ops.count + 1, 1);
	if (!infer || !verdicts)
		abort();
	tpck_sequence_tell_nodes(&s->ops, infer);
	clock_gettime(CLOCK_MONOTONIC, &t0);
	for (size_t i = 0; i < s->ops.count; i++)
		verdicts[i] = (unsigned char)tpck_infer_feed(infer, &s->ops.ops[i].token);
	clock_gettime(CLOCK_MONOTONIC, &t1);
	*ns = ((double)(t1.tv_sec - t0.tv_sec) * 1e9 + (double)(t1.tv_nsec - t0.tv_nsec)) / (double)(s->ops.count ? s->ops.count : 1);
	for (size_t i = 0; i < s->ops.count; i++) {
		if (verdicts[i] & TPCK_V_BOUNDARY_BEFORE)
			mark(s, i, &score, show);
		if (verdicts[i] & TPCK_V_BOUNDARY_AFTER)
			mark(s, i + 1, &score, show);
	}
	for (size_t i = 3; i < s->begin_count; i++) {
		score.begins++;
		score.begun += (verdicts[s->begins[i]] & TPCK_V_OPT_BEGIN) != 0;
	}
	/* The last iteration's end may only be seen by the operation behind it, which a file need not have. */
	for (size_t i = s->truth_count; i-- > 0;) {
		bool last = s->truths[i].from >= s->ops.count;
		if (s->truths[i].found == UINT64_MAX && !last) {
			score.late += i >= 3;
			if (score.first < 0)
				score.first = (long)i + 2;
		}
	}
	if (score.first < 0)
		score.first = 1;
	for (size_t i = 0; i < s->ops.count && !score.sure; i++)
		score.sure = verdicts[i] & (TPCK_V_BOUNDARY_BEFORE | TPCK_V_BOUNDARY_AFTER) ? i : 0;
	if (explain)
		printf("%s", tpck_infer_explain(infer));
	free(verdicts);
	tpck_infer_free(infer);
	return score;
}

int main(int argc, char **argv)
{
	struct tpck_infer_options options = {true, true, false};
	bool show = false, explain = false, may_miss = false;
	int failed = 0;
	printf("%-42s %6s %6s %6s %6s %6s %6s %11s %8s\n", "sequence", "ops", "true", "found", "wrong", "from", "sure",
	       "begins", "ns/op");
	for (int i = 1; i < argc; i++) {
		struct sequence s = {0};
		const char *name = strrchr(argv[i], '/');
		struct tpck_error err = {0};
		struct score score;
		double ns;
		if (strcmp(argv[i], "--no-names") == 0)
			options.use_names = false;
		else if (strcmp(argv[i], "--no-pattern") == 0)
			options.use_pattern = false;
		else if (strcmp(argv[i], "--may-miss") == 0)
			may_miss = true;
		else if (strcmp(argv[i], "--explain") == 0)
			explain = true;
		else if (strcmp(argv[i], "--boundaries") == 0)
			show = true;
		if (argv[i][0] == '-')
			continue;
		if (tpck_sequence_read(&s.ops, argv[i], take_line, &s, &err)) {
			fprintf(stderr, "%s\n", err.text);
			return 2;
		}
		take_end(&s);
		score = run(&s, &options, show, explain, &ns);
		printf("%-42s %6zu %6zu %6zu %6zu ", name ? name + 1 : argv[i], s.ops.count, s.truth_count, score.found, score.wrong);
		if (score.first > (long)s.truth_count || (score.found == 0 && s.truth_count))
			printf("%6s", "-");
		else
			printf("%6ld", score.first);
		if (score.found)
			printf(" %6" PRIu64, score.sure);
		else
			printf(" %6s", "-");
		printf(" %5zu/%-5zu %8.1f\n", score.begun, score.begins, ns);
		failed |= score.wrong > 0 || (options.use_names && options.use_pattern && !may_miss && score.late > 0);
		free_sequence(&s);
	}
	return failed;
}
