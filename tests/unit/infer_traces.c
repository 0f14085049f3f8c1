/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Feeds launch sequences from files to the inference engine and compares its boundaries with the truth in the files.
 *
 *   infer_traces [--no-names] [--no-pattern] [--explain] [--boundaries] FILE...
 *
 * A line is a device operation: kind name grid block smem stream tid bytes dir host_us api device, tab separated. Lines
 * that begin with # are comments; `# iteration-end N` stands where an iteration ended. A file is plain or gzip. The
 * lines of one graph launch are one operation.
 *
 * One line of result a file: operations, iterations, how many of their ends were found, boundaries at wrong places,
 * the iteration from which on all were found, optimizer windows told at their very first kernel (from the fourth on),
 * time an operation. An end that only the operation behind it could betray is not counted at the end of a file.
 * Exit 1 if a boundary is wrong, or if, with names, one is missed from the fourth iteration on.
 *
 * A boundary is right between the end of the iteration's optimizer and the first operation of the next step, where the
 * file marks steps; elsewhere only right behind the optimizer. Gradients cleared there may be on either side.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zlib.h>

#include "runtime/infer/infer.h"

struct truth {
    uint64_t from, to; /* operations before which the boundary may stand */
    uint64_t found;
};

struct node {
    uint64_t graph;
    struct tpck_token token;
};

struct sequence {
    uint64_t *begins; /* first kernels of optimizer windows */
    size_t begin_count, begin_room;
    struct tpck_token *tokens;
    size_t count, room;
    struct node *nodes;
    size_t node_count, node_room;
    struct truth *truths;
    size_t truth_count, truth_room;
    char **names;
    size_t name_count;
    uint64_t tids[64];
    uint32_t tid_count;
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

static uint64_t text_digest(const char *text)
{
    uint64_t digest = 14695981039346656037ull;
    for (; *text; text++)
        digest = (digest ^ (unsigned char)*text) * 1099511628211ull;
    return digest;
}

static uint32_t thread_ordinal(struct sequence *s, uint64_t tid)
{
    for (uint32_t i = 0; i < s->tid_count; i++)
        if (s->tids[i] == tid)
            return i;
    if (s->tid_count < 64)
        s->tids[s->tid_count++] = tid;
    return s->tid_count - 1;
}

static char *keep(struct sequence *s, const char *text)
{
    static size_t room;
    if (s->name_count == 0)
        room = 0;
    s->names = grow(s->names, s->name_count, &room, sizeof *s->names);
    return s->names[s->name_count++] = strdup(text);
}

/* Names repeat: the last one of each digest is found again. */
static const char *intern(struct sequence *s, const char *text, uint64_t digest)
{
    static const char *recent[4096];
    static const struct sequence *owner;
    const char **slot = &recent[digest % 4096];
    if (owner != s) {
        memset(recent, 0, sizeof recent);
        owner = s;
    }
    if (!*slot || strcmp(*slot, text) != 0)
        *slot = keep(s, text);
    return *slot;
}

static void read_triple(const char *text, uint32_t to[3])
{
    to[0] = to[1] = to[2] = 0;
    sscanf(text, "%" SCNu32 ",%" SCNu32 ",%" SCNu32, &to[0], &to[1], &to[2]);
}

static enum tpck_op operation(const char *kind, const char *name, const char *dir)
{
    if (strcmp(kind, "graph") == 0)
        return TPCK_OP_GRAPH;
    if (strcmp(kind, "memset") == 0)
        return TPCK_OP_MEMSET;
    if (strcmp(kind, "memcpy") == 0)
        return strcmp(dir, "HtoD") == 0 ? TPCK_OP_H2D : strcmp(dir, "DtoH") == 0 ? TPCK_OP_D2H : TPCK_OP_D2D;
    return strstr(name, "nccl") ? TPCK_OP_COLLECTIVE : TPCK_OP_KERNEL;
}

struct graph_lines {
    char host_us[32], tid[32];
    size_t token;
};

/* The lines of one graph launch become one operation. Its identity is made from that of its first node: profiles tell
 * neither graphs nor handles. The nodes are told to the engine as if at capture. */
static void add_operation(struct sequence *s, char *line, struct graph_lines *graph)
{
    char *field[12] = {0};
    struct tpck_token token = {0};
    for (int i = 0; i < 12 && line; i++)
        field[i] = strsep(&line, "\t");
    if (!field[10])
        return;
    token.op = operation(field[0], field[1], field[8]);
    token.thread = thread_ordinal(s, strtoull(field[6], NULL, 10));
    token.stream = (uint32_t)strtoul(field[5], NULL, 10);
    token.bytes = strtoull(field[7], NULL, 10);
    if (token.op == TPCK_OP_KERNEL || token.op == TPCK_OP_GRAPH || token.op == TPCK_OP_COLLECTIVE) {
        token.func = text_digest(field[1]);
        token.name = intern(s, field[1], token.func);
        read_triple(field[2], token.grid);
        read_triple(field[3], token.block);
        token.smem = (uint32_t)strtoul(field[4], NULL, 10);
    }
    if (token.op == TPCK_OP_GRAPH) {
        const char *count = strstr(field[1], "nodes=");
        token.name = NULL;
        token.grid[0] = count ? (uint32_t)strtoul(count + 6, NULL, 10) : 0;
    }
    if (token.op != TPCK_OP_GRAPH && strstr(field[10], "GraphLaunch")) {
        bool same = strcmp(graph->host_us, field[9]) == 0 && strcmp(graph->tid, field[6]) == 0;
        uint64_t id = same ? s->tokens[graph->token].func : ~token.func;
        s->nodes = grow(s->nodes, s->node_count, &s->node_room, sizeof *s->nodes);
        s->nodes[s->node_count++] = (struct node){id, token};
        if (same) {
            s->tokens[graph->token].grid[0]++;
            return;
        }
        snprintf(graph->host_us, sizeof graph->host_us, "%s", field[9]);
        snprintf(graph->tid, sizeof graph->tid, "%s", field[6]);
        graph->token = s->count;
        token = (struct tpck_token){.op = TPCK_OP_GRAPH, .thread = token.thread, .stream = token.stream, .grid = {1, 0, 0},
                                    .func = id};
    } else {
        graph->host_us[0] = '\0';
    }
    s->tokens = grow(s->tokens, s->count, &s->room, sizeof *s->tokens);
    s->tokens[s->count++] = token;
}

static int read_sequence(struct sequence *s, const char *path)
{
    gzFile file = gzopen(path, "rb");
    struct graph_lines graph = {0};
    static char line[1 << 16];
    bool waiting = false, clearing = false, opening = false;
    if (!file)
        return -1;
    while (gzgets(file, line, sizeof line)) {
        struct truth *last = s->truth_count ? &s->truths[s->truth_count - 1] : NULL;
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "# iteration-end", 15) == 0) {
            s->truths = grow(s->truths, s->truth_count, &s->truth_room, sizeof *s->truths);
            s->truths[s->truth_count++] = (struct truth){s->count, s->count, UINT64_MAX};
            waiting = true;
        } else if (strncmp(line, "# step", 6) == 0 && strstr(line, "begin")) {
            if (waiting && last)
                last->to = s->count;
            waiting = false;
        } else if (strncmp(line, "# optimizer begin", 17) == 0) {
            opening = !strstr(line, "captured") && !strstr(line, "closure");
        } else if (strncmp(line, "# optimizer end", 15) == 0) {
            opening = false;
        } else if (strncmp(line, "# zero_grad begin", 17) == 0) {
            clearing = waiting && last && last->to == s->count;
        } else if (strncmp(line, "# zero_grad end", 15) == 0) {
            if (clearing)
                last->to = s->count;
            clearing = false;
        } else if (line[0] != '#') {
            size_t before = s->count;
            add_operation(s, line, &graph);
            if (opening && s->count > before && s->tokens[before].op == TPCK_OP_KERNEL) {
                s->begins = grow(s->begins, s->begin_count, &s->begin_room, sizeof *s->begins);
                s->begins[s->begin_count++] = before;
                opening = false;
            }
        }
    }
    gzclose(file);
    return 0;
}

static void free_sequence(struct sequence *s)
{
    for (size_t i = 0; i < s->name_count; i++)
        free(s->names[i]);
    free(s->names);
    free(s->tokens);
    free(s->nodes);
    free(s->begins);
    free(s->truths);
}

struct score {
    size_t found, wrong, late; /* late: missed from the fourth on */
    size_t begins, begun;      /* optimizer windows from the fourth on, and how many were told at their first kernel */
    long first;                /* all found from this one on, or -1 */
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
    unsigned char *verdicts = calloc(s->count + 1, 1);
    if (!infer || !verdicts)
        abort();
    for (size_t i = 0; i < s->node_count; i++)
        tpck_infer_graph_node(infer, s->nodes[i].graph, &s->nodes[i].token);
    clock_gettime(CLOCK_MONOTONIC, &t0);
    for (size_t i = 0; i < s->count; i++)
        verdicts[i] = (unsigned char)tpck_infer_feed(infer, &s->tokens[i]);
    clock_gettime(CLOCK_MONOTONIC, &t1);
    *ns = ((double)(t1.tv_sec - t0.tv_sec) * 1e9 + (double)(t1.tv_nsec - t0.tv_nsec)) / (double)(s->count ? s->count : 1);
    for (size_t i = 0; i < s->count; i++) {
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
        bool last = s->truths[i].from >= s->count;
        if (s->truths[i].found == UINT64_MAX && !last) {
            score.late += i >= 3;
            if (score.first < 0)
                score.first = (long)i + 2;
        }
    }
    if (score.first < 0)
        score.first = 1;
    if (explain)
        printf("%s", tpck_infer_explain(infer));
    free(verdicts);
    tpck_infer_free(infer);
    return score;
}

int main(int argc, char **argv)
{
    struct tpck_infer_options options = {true, true, false};
    bool show = false, explain = false;
    int failed = 0;
    printf("%-42s %6s %6s %6s %6s %6s %11s %8s\n", "sequence", "ops", "true", "found", "wrong", "from",
           "begins", "ns/op");
    for (int i = 1; i < argc; i++) {
        struct sequence s = {0};
        const char *name = strrchr(argv[i], '/');
        struct score score;
        double ns;
        if (strcmp(argv[i], "--no-names") == 0)
            options.use_names = false;
        else if (strcmp(argv[i], "--no-pattern") == 0)
            options.use_pattern = false;
        else if (strcmp(argv[i], "--explain") == 0)
            explain = true;
        else if (strcmp(argv[i], "--boundaries") == 0)
            show = true;
        if (argv[i][0] == '-')
            continue;
        if (read_sequence(&s, argv[i]) < 0) {
            fprintf(stderr, "cannot read %s\n", argv[i]);
            return 2;
        }
        score = run(&s, &options, show, explain, &ns);
        printf("%-42s %6zu %6zu %6zu %6zu ", name ? name + 1 : argv[i], s.count, s.truth_count, score.found, score.wrong);
        if (score.first > (long)s.truth_count || (score.found == 0 && s.truth_count))
            printf("%6s", "-");
        else
            printf("%6ld", score.first);
        printf(" %5zu/%-5zu %8.1f\n", score.begun, score.begins, ns);
        failed |= score.wrong > 0 || (options.use_names && score.late > 0);
        free_sequence(&s);
    }
    return failed;
}
