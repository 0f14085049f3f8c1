/* SPDX-License-Identifier: Apache-2.0 */
/* transpckpt infer: the engine that finds iterations in a running program, fed with launch sequences from files. */
#include "config.h"

#include <getopt.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/infer/infer.h"
#include "runtime/infer/kernel_names.h"
#include "runtime/infer/sequence.h"
#include "tools/cli/cli.h"

static const char usage[] =
	"usage: transpckpt infer [--json] [--no-names] [--no-pattern] [--explain N] FILE...\n"
	"\n"
	"Finds where iterations end in recorded launch sequences, plain or gzip. One line an end: the number of\n"
	"the operation behind which it is, from 0. The summary goes to standard error.\n"
	"\n"
	"  --json         one JSON array instead, one object a file\n"
	"  --no-names     hide the names of all kernels\n"
	"  --no-pattern   go by names alone\n"
	"  --explain N    say why an iteration ends, or does not, near operation N\n";

enum { AROUND = 4 };

struct request {
	bool json, explain;
	uint64_t at;
	struct tpck_infer_options options;
	int files;
};

/* One end of an iteration, in lines of the file. */
struct end {
	uint64_t after, announced; /* behind this operation; known when that one was seen */
};

struct found {
	struct tpck_sequence sequence;
	struct end *ends;
	size_t count;
	unsigned char *verdicts;
	struct tpck_infer_summary summary;
	uint64_t sure_since;
	char explained[1024]; /* what the engine said when the operation in question was fed */
};

static int feed(struct found *found, const struct request *request)
{
	const struct tpck_sequence *s = &found->sequence;
	struct tpck_infer *infer = tpck_infer_new(&request->options);

	found->ends = calloc(s->count + 1, sizeof *found->ends);
	found->verdicts = calloc(s->count + 1, 1);
	if (!infer || !found->ends || !found->verdicts) {
		tpck_infer_free(infer);
		return -1;
	}
	tpck_sequence_tell_nodes(s, infer);
	for (size_t i = 0; i < s->count; i++) {
		const struct tpck_sequence_op *op = &s->ops[i];
		unsigned verdict = tpck_infer_feed(infer, &op->token);

		found->verdicts[i] = (unsigned char)verdict;
		if ((verdict & TPCK_V_BOUNDARY_BEFORE) && i)
			found->ends[found->count++] = (struct end){s->ops[i - 1].last, op->first};
		if (verdict & TPCK_V_BOUNDARY_AFTER)
			found->ends[found->count++] = (struct end){op->last, op->last};
		if (request->explain && op->first <= request->at)
			snprintf(found->explained, sizeof found->explained, "%s", tpck_infer_explain(infer));
	}
	tpck_infer_summary(infer, &found->summary);
	found->sure_since = found->summary.sure_since < s->count ? s->ops[found->summary.sure_since].first : s->lines;
	tpck_infer_free(infer);
	return 0;
}

static const char *witnesses(const struct tpck_infer_summary *summary)
{
	bool names = summary->witnesses & TPCK_W_NAMES, pattern = summary->witnesses & TPCK_W_PATTERN;

	return names && pattern ? "names and pattern" : names ? "names" : pattern ? "pattern" : "none";
}

/* ---- why -------------------------------------------------------------------------------------- */

static const char *role(const struct tpck_token *token)
{
	static char text[100];
	struct tpck_named_kernel named;

	if (token->op != TPCK_OP_KERNEL)
		return "";
	named = tpck_name_kernel(token->name, token->param_bytes);
	if (named.role != TPCK_ROLE_OPTIMIZER)
		return named.role == TPCK_ROLE_POINTWISE ? "arithmetic, also of optimizers" : "";
	snprintf(text, sizeof text, "an optimizer's by its name (%s)%s", named.family ? named.family : "a word",
		 named.update ? ", writes parameters" : "");
	return text;
}

static size_t op_of_line(const struct tpck_sequence *s, uint64_t line)
{
	size_t i = 0;

	while (i + 1 < s->count && s->ops[i].last < line)
		i++;
	return i;
}

static void explain(FILE *to, const struct found *found, const struct request *request)
{
	static const char *const kinds[] = {"kernel", "copy to the device", "copy to the host", "copy on the device",
					    "fill", "graph", "collective"};
	const struct tpck_sequence *s = &found->sequence;
	size_t at = op_of_line(s, request->at), from = at > AROUND ? at - AROUND : 0;
	const struct end *before = NULL, *after = NULL;

	for (size_t i = 0; i < found->count; i++) {
		if (found->ends[i].after < request->at)
			before = &found->ends[i];
		else if (!after)
			after = &found->ends[i];
	}
	for (size_t i = from; i < s->count && i <= at + AROUND; i++) {
		const struct tpck_token *token = &s->ops[i].token;

		fprintf(to, "%c %8" PRIu64 "  %-18s %-60.60s %s%s%s\n", i == at ? '>' : ' ', s->ops[i].first, kinds[token->op],
			request->options.use_names && token->name ? token->name : "",
			request->options.use_names ? role(token) : "",
			found->verdicts[i] & TPCK_V_OPT_BEGIN ? " [an optimizer phase begins]" : "",
			found->verdicts[i] & TPCK_V_BOUNDARY_AFTER    ? " [the iteration ends behind it]"
			: found->verdicts[i] & TPCK_V_BOUNDARY_BEFORE ? " [the iteration ended before it]"
								      : "");
	}
	if (before)
		fprintf(to, "the last end before it: behind operation %" PRIu64 "\n", before->after);
	if (after)
		fprintf(to, "%s: behind operation %" PRIu64 ", known at operation %" PRIu64 "\n",
			after->after == request->at ? "an iteration ends here" : "the next end", after->after,
			after->announced);
	if (!before && !after)
		fputs("no iteration's end was found in this sequence\n", to);
	fprintf(to, "what was known when operation %" PRIu64 " was seen: %s", s->count ? s->ops[at].first : 0,
		found->explained);
}

/* ---- answers ---------------------------------------------------------------------------------- */

static void print_text(const char *path, const struct found *found, const struct request *request)
{
	const struct tpck_infer_summary *summary = &found->summary;

	if (request->files > 1)
		printf("==> %s <==\n", path);
	for (size_t i = 0; i < found->count; i++)
		printf("%" PRIu64 "\tend %zu\tknown at %" PRIu64 "\n", found->ends[i].after, i + 1, found->ends[i].announced);
	if (request->explain)
		explain(stdout, found, request);
	fflush(stdout);
	fprintf(stderr, "%s: %" PRIu64 " operations, %zu ends of iterations; ", path, found->sequence.lines, found->count);
	if (!summary->sure)
		fprintf(stderr, "not sure: %s\n", summary->reason);
	else
		fprintf(stderr, "period %" PRIu64 ", %u launches of the optimizer, found by %s, confidence %.2f, sure from operation "
				"%" PRIu64 " on\n",
			summary->period, summary->optimizer_ops, witnesses(summary), summary->confidence, found->sure_since);
}

static json_object *answer_json(const char *path, const struct found *found, const struct request *request)
{
	const struct tpck_infer_summary *summary = &found->summary;
	json_object *json = json_object_new_object(), *ends = json_object_new_array();

	for (size_t i = 0; i < found->count; i++) {
		json_object *end = json_object_new_object();

		json_object_object_add(end, "after", json_object_new_uint64(found->ends[i].after));
		json_object_object_add(end, "known_at", json_object_new_uint64(found->ends[i].announced));
		json_object_array_add(ends, end);
	}
	json_object_object_add(json, "file", json_object_new_string(path));
	json_object_object_add(json, "operations", json_object_new_uint64(found->sequence.lines));
	json_object_object_add(json, "boundaries", ends);
	json_object_object_add(json, "sure", json_object_new_boolean(summary->sure));
	json_object_object_add(json, "period", json_object_new_uint64(summary->period));
	json_object_object_add(json, "optimizer_operations", json_object_new_uint64(summary->optimizer_ops));
	json_object_object_add(json, "witnesses", json_object_new_string(witnesses(summary)));
	json_object_object_add(json, "confidence", json_object_new_double(summary->confidence));
	json_object_object_add(json, "sure_from", summary->sure ? json_object_new_uint64(found->sure_since) : NULL);
	json_object_object_add(json, "reason", json_object_new_string(summary->reason));
	if (request->explain)
		json_object_object_add(json, "explained", json_object_new_string(found->explained));
	return json;
}

static int one_file(const char *path, const struct request *request, json_object *answers)
{
	struct found found = {.count = 0};
	struct tpck_error err = {0};
	int rc = CLI_GOOD;

	if (tpck_sequence_read(&found.sequence, path, NULL, NULL, &err)) {
		fprintf(stderr, "transpckpt: %s\n", err.text);
		rc = CLI_BAD;
	} else if (request->explain && request->at >= found.sequence.lines) {
		fprintf(stderr, "transpckpt: %s has no operation %" PRIu64 ", only %" PRIu64 " of them, counted from 0\n", path,
			request->at, found.sequence.lines);
		rc = CLI_BAD;
	} else if (feed(&found, request)) {
		fprintf(stderr, "transpckpt: no memory for %s\n", path);
		rc = CLI_BAD;
	} else if (request->json) {
		json_object_array_add(answers, answer_json(path, &found, request));
	} else {
		print_text(path, &found, request);
	}
	tpck_sequence_free(&found.sequence);
	free(found.ends);
	free(found.verdicts);
	return rc;
}

static int number(const char *text, uint64_t *value)
{
	char *end;

	*value = strtoull(text, &end, 10);
	return text[0] < '0' || text[0] > '9' || *end ? -1 : 0;
}

int verb_infer(int argc, char **argv)
{
	static const struct option options[] = {
		{"json", no_argument, NULL, 'J'}, {"no-names", no_argument, NULL, 'n'},
		{"no-pattern", no_argument, NULL, 'p'}, {"explain", required_argument, NULL, 'e'},
		{"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0},
	};
	struct request request = {.options = {.use_names = true, .use_pattern = true}};
	json_object *answers;
	int option, rc = CLI_GOOD;

	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (option == 'J') {
			request.json = true;
		} else if (option == 'n') {
			request.options.use_names = false;
		} else if (option == 'p') {
			request.options.use_pattern = false;
		} else if (option == 'e' && number(optarg, &request.at) == 0) {
			request.explain = true;
		} else {
			if (option == 'e')
				fprintf(stderr, "transpckpt: --explain takes an operation's number, not '%s'\n", optarg);
			fputs(usage, option == 'h' ? stdout : stderr);
			return option == 'h' ? CLI_GOOD : CLI_USAGE;
		}
	}
	request.files = argc - optind;
	if (!request.files) {
		fputs(usage, stderr);
		return CLI_USAGE;
	}
	answers = json_object_new_array();
	for (int i = optind; i < argc; i++) {
		int one = one_file(argv[i], &request, answers);

		rc = one ? one : rc;
	}
	if (request.json)
		puts(json_object_to_json_string_ext(answers, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED));
	json_object_put(answers);
	return rc;
}
