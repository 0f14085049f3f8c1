/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that speaks to the agent as the preloaded library does, without any device: its state at
 * a step is a function of the step, so whatever it is offered can be compared byte for byte.
 * Prints one line an event. Exit status: 0, --status, 3 for an offer that is not what was stored,
 * 4 for no agent.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/block_digest.h"
#include "runtime/base/digest.h"
#include "runtime/wire/message.h"
#include "runtime/wire/pack.h"
#include "runtime/wire/segment.h"

static struct {
	uint64_t steps, kill_at, exit_at, bytes, segment, want, launch, more_at, iteration_ns;
	unsigned images, pause_ms, rank, ordinal, world;
	int status;
	bool fresh, wait_commit, wait_durable, no_ending, kill_forward, digests, lie, unresumable, silent, more_images, repeats;
	unsigned unpacked;
	const char *job, *folder, *arguments[16];
	int argument_count;
	const char *executable;
} set = {
	.steps = 5, .kill_at = UINT64_MAX, .exit_at = UINT64_MAX, .bytes = (9 << 20) + 123, .segment = 1 << 20,
	.want = UINT64_MAX, .images = 3, .world = 1, .wait_commit = true, .executable = "/opt/trainer",
};

static int fd = -1;
static struct tpck_welcome welcome;
static struct tpck_control *control;
static struct tpck_image_header *images[TPCK_IMAGES_MAX];
static unsigned image_count;
static uint64_t image_bytes;

static void die(int status, const char *what)
{
	printf("error %s: %s\n", what, strerror(errno));
	fflush(stdout);
	_exit(status);
}

/* ---- the state, as a function of the step ------------------------------------------------- */

static void pattern(uint8_t *to, uint64_t bytes, uint64_t seed)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15ull + 1;

	for (uint64_t i = 0; i < bytes; i++) {
		if (i % 8 == 0) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
		}
		to[i] = (uint8_t)(x >> (8 * (i % 8)));
	}
}

/* Every other chunk never changes. */
static uint64_t chunk_seed(uint64_t chunk, uint64_t step)
{
	return chunk % 2 ? chunk * 1000003 : chunk * 1000003 + step * 17 + 5;
}

static uint64_t chunk_count(void)
{
	return (set.bytes + TPCK_CHUNK_BYTES - 1) / TPCK_CHUNK_BYTES;
}

static uint64_t chunk_bytes(uint64_t i)
{
	uint64_t left = set.bytes - i * TPCK_CHUNK_BYTES;

	return left < TPCK_CHUNK_BYTES ? left : TPCK_CHUNK_BYTES;
}

static uint64_t record_bytes(uint64_t step)
{
	return 64 + step * 7919 % 60000;
}

/* ---- messages ----------------------------------------------------------------------------- */

static void send_message(int type, const void *a, size_t a_size, const void *b, size_t b_size)
{
	struct tpck_message head = {
		.magic = TPCK_MESSAGE_MAGIC, .version = TPCK_WIRE_VERSION, .type = (uint16_t)type,
		.bytes = (uint32_t)(a_size + b_size),
	};
	struct iovec parts[3] = {{&head, sizeof head}, {(void *)(uintptr_t)a, a_size}, {(void *)(uintptr_t)b, b_size}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};

	if (sendmsg(fd, &message, MSG_NOSIGNAL) < 0)
		printf("lost the agent\n");
}

/* Type of the next message, 0 when none came in time. */
static int receive(void *payload, size_t size, int seconds)
{
	static char packet[TPCK_MESSAGE_BYTES_MAX];
	struct timeval limit = {.tv_sec = seconds};
	struct tpck_message head;
	ssize_t got;

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	got = recv(fd, packet, sizeof packet, 0);
	if (got < (ssize_t)sizeof head)
		return 0;
	memcpy(&head, packet, sizeof head);
	if (head.bytes < size)
		size = head.bytes;
	if (size)
		memcpy(payload, packet + sizeof head, size);
	return head.type;
}

static bool attach(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int folder = open(set.folder, O_PATH | O_CLOEXEC);

	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/agent.sock", folder);
	if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) {
		close(folder);
		return true;
	}
	close(fd);
	if (folder >= 0)
		close(folder);
	return false;
}

static void attach_or_start(void)
{
	const char *agent = getenv("TRANSPCKPT_AGENT");

	for (int try = 0; try < 20; try++) {
		pid_t pid;
		int status;

		if (attach())
			return;
		if (!agent)
			break;
		pid = fork();
		if (pid == 0) {
			execl(agent, agent, "--job", set.job, (char *)NULL);
			_exit(127);
		}
		waitpid(pid, &status, 0);
	}
	die(4, "no agent");
}

static size_t identity_text(char *text, size_t size)
{
	size_t used = (size_t)snprintf(text, size,
				       "user %u\njob %s\nrank %u\nordinal %u\nexecutable %s\nexecutable-digest 00\nfolder /tmp\nargument %s\n",
				       (unsigned)getuid(), set.job, set.rank, set.ordinal, set.executable, set.executable);

	for (int i = 0; i < set.argument_count; i++)
		used += (size_t)snprintf(text + used, size - used, "argument %s\n", set.arguments[i]);
	used += (size_t)snprintf(text + used, size - used, "environment A=1\nlibrary none\n");
	return used;
}

static void *map(const char *path, size_t *size, bool writable)
{
	int file = open(path, writable ? O_RDWR : O_RDONLY);
	struct stat status;
	void *base;

	if (file < 0 || fstat(file, &status))
		return NULL;
	base = mmap(NULL, (size_t)status.st_size, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, file, 0);
	close(file);
	if (size)
		*size = (size_t)status.st_size;
	return base == MAP_FAILED ? NULL : base;
}

static void hello(uint32_t flags)
{
	char text[8192], path[512];
	struct tpck_hello h = {
		.pid = getpid(), .flags = flags, .rank = set.rank, .world = set.world, .launch = set.launch, .ordinal = set.ordinal,
		.generation = welcome.generation, .resume_step = set.want,
	};

	h.identity_bytes = (uint32_t)identity_text(text, sizeof text);
	send_message(TPCK_MSG_HELLO, &h, sizeof h, text, h.identity_bytes);
	if (receive(&welcome, sizeof welcome, 60) != TPCK_MSG_WELCOME)
		die(4, "no welcome");
	if (welcome.notice[0])
		printf("notice %s\n", welcome.notice);
	if (!welcome.generation)
		die(4, "refused");
	printf("generation %" PRIu64 "\n", welcome.generation);
	snprintf(path, sizeof path, "%s/control", welcome.session);
	control = map(path, NULL, true);
	if (!control || control->magic != TPCK_CONTROL_MAGIC || control->generation != welcome.generation)
		die(4, "no control page");
	control->pid = getpid();
}

/* ---- log ---------------------------------------------------------------------------------- */

static struct tpck_log_header *segment;

static void segment_open(uint64_t sequence, bool fresh)
{
	char path[512];

	snprintf(path, sizeof path, "%s/log.%06u", welcome.session, (unsigned)sequence);
	if (segment)
		munmap(segment, segment->bytes);
	if (fresh) {
		int file = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);

		if (file < 0 || ftruncate(file, (off_t)set.segment))
			die(4, path);
		close(file);
	}
	segment = map(path, NULL, true);
	if (!segment)
		die(4, path);
	if (fresh) {
		segment->magic = TPCK_LOG_MAGIC;
		segment->version = TPCK_WIRE_VERSION;
		segment->generation = welcome.generation;
		segment->sequence = sequence;
		segment->bytes = set.segment;
		segment->used = sizeof *segment;
	}
}

/* Where the record of a step ends, with all before it: the log too is a function of the step. */
static void cut_of(uint64_t step, uint64_t *sequence, uint64_t *offset)
{
	*sequence = 0;
	*offset = sizeof(struct tpck_log_header);
	for (uint64_t s = 1; s <= step; s++) {
		if (*offset + record_bytes(s) > set.segment) {
			(*sequence)++;
			*offset = sizeof(struct tpck_log_header);
		}
		*offset += record_bytes(s);
	}
}

/* What a step's record is. */
static void record_pattern(uint8_t *to, uint64_t step)
{
	if (set.repeats)
		memset(to, (int)step, record_bytes(step));
	else
		pattern(to, record_bytes(step), step + 77);
}

static void log_step(uint64_t step)
{
	uint64_t sequence, offset;

	cut_of(step, &sequence, &offset);
	if (sequence != segment->sequence) {
		segment->sealed = 1;
		segment_open(sequence, true);
	}
	record_pattern((uint8_t *)segment + offset - record_bytes(step), step);
	atomic_store(&segment->used, offset);
}

/* A segment as it was before it was packed. NULL: there is none. */
static struct tpck_log_header *unpacked(uint64_t sequence)
{
	struct tpck_log_header *whole = NULL;
	uint64_t end = 0;
	char path[512];
	size_t size;
	void *pack;

	snprintf(path, sizeof path, "%s/" TPCK_PACK_PREFIX "%06u", welcome.session, (unsigned)sequence);
	pack = map(path, &size, false);
	if (!pack || tpck_pack_learn(pack, size, sequence, &end))
		return NULL;
	whole = mmap(NULL, set.segment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (whole == MAP_FAILED || end > set.segment || tpck_pack_read(pack, size, sequence, whole, end))
		return NULL;
	set.unpacked++;
	return whole;
}

static bool log_is(uint64_t step)
{
	uint64_t sequence = 0, offset = sizeof(struct tpck_log_header), at = UINT64_MAX;
	uint8_t *expected = malloc(64 + 60000);
	struct tpck_log_header *base = NULL;
	bool good = true;

	for (uint64_t s = 1; s <= step && good; s++) {
		char path[512];

		cut_of(s, &sequence, &offset);
		if (sequence != at) {
			if (base)
				munmap(base, set.segment);
			snprintf(path, sizeof path, "%s/log.%06u", welcome.session, (unsigned)sequence);
			base = map(path, NULL, false);
			if (!base)
				base = unpacked(sequence);
			at = sequence;
			good = base && base->magic == TPCK_LOG_MAGIC && base->sequence == sequence &&
			       base->bytes == set.segment && base->sealed == (sequence != welcome.log_sequence);
		}
		record_pattern(expected, s);
		good = good && memcmp((uint8_t *)base + offset - record_bytes(s), expected, record_bytes(s)) == 0;
	}
	free(expected);
	if (step == 0)
		return true;
	good = good && base->used == welcome.log_offset;
	cut_of(step, &sequence, &offset);
	return good && sequence == welcome.log_sequence && offset == welcome.log_offset;
}

/* ---- images ------------------------------------------------------------------------------- */

static void prepared(void)
{
	struct tpck_prepare ready;

	if (receive(&ready, sizeof ready, 120) != TPCK_MSG_READY)
		die(4, "no READY");
	printf("ready %u images of %" PRIu64 " bytes%s%s\n", ready.images, ready.bytes, ready.reason[0] ? ": " : "",
	       ready.reason);
	image_bytes = ready.bytes;
	image_count = ready.bytes ? ready.images : 0;
	for (unsigned i = 0; i < image_count; i++) {
		char path[512];

		snprintf(path, sizeof path, "%s/image.%u", welcome.session, i);
		images[i] = map(path, NULL, true);
		if (!images[i])
			die(4, path);
	}
}

static void prepare(void)
{
	struct tpck_prepare p = {.bytes = set.bytes, .images = set.images};

	send_message(TPCK_MSG_PREPARE, &p, sizeof p, NULL, 0);
	prepared();
	/* Of large ones the first comes first. */
	if (set.more_images)
		prepared();
}

static int take_image(void)
{
	for (unsigned i = 0; i < image_count; i++) {
		uint32_t state = atomic_load(&images[i]->state);

		if ((state == TPCK_IMAGE_FREE || state == TPCK_IMAGE_ABANDONED) && atomic_load(&images[i]->pins) == 0 &&
		    atomic_compare_exchange_strong(&images[i]->state, &state, TPCK_IMAGE_FILLING))
			return (int)i;
	}
	return -1;
}

static void fill(struct tpck_image_header *h, uint64_t step)
{
	struct tpck_image_chunk *chunks = (void *)((char *)h + TPCK_IMAGE_CHUNKS_AT);
	struct tpck_image_row *rows = (void *)((char *)h + TPCK_IMAGE_INDEX_AT);
	uint8_t *data = (uint8_t *)h + TPCK_IMAGE_DATA_AT;

	struct tpck_image_communicator *communicator = (void *)(rows + chunk_count());

	h->footer = 0;
	h->communicators = set.world > 1;
	if (h->communicators)
		*communicator = (struct tpck_image_communicator){.id = 7, .size = set.world, .rank = set.rank,
								 .collectives = 10 * step + (step == set.more_at)};
	h->generation = welcome.generation;
	h->step = step;
	h->data_bytes = set.bytes;
	h->chunks = (uint32_t)chunk_count();
	h->rows = (uint32_t)chunk_count();
	for (uint64_t i = 0; i < chunk_count(); i++) {
		atomic_store(&chunks[i].ready, 0);
		atomic_store(&chunks[i].hashed, 0);
		pattern(data + i * TPCK_CHUNK_BYTES, chunk_bytes(i), chunk_seed(i, step));
		chunks[i].bytes = chunk_bytes(i);
		atomic_store(&chunks[i].ready, 1);
		memset(&rows[i], 0, sizeof rows[i]);
		rows[i].address = 0x7f0000000000 + i * TPCK_CHUNK_BYTES;
		rows[i].bytes = chunk_bytes(i);
		rows[i].data_offset = i * TPCK_CHUNK_BYTES;
		rows[i].order = i;
		rows[i].asof_step = i % 2 ? 0 : step;
		if (set.digests)
			rows[i].device_digest =
				tpck_block_digest(data + i * TPCK_CHUNK_BYTES, chunk_bytes(i)) ^ (set.lie ? 1 : 0);
	}
	cut_of(step, &h->log_sequence, &h->log_offset);
	h->resumable = !set.unresumable;
	snprintf(h->reason, sizeof h->reason, "%s", set.unresumable ? "told so" : "");
	h->footer = tpck_image_footer(h);
}

static bool image_is(uint64_t step)
{
	char path[512];
	size_t size;
	struct tpck_image_header *h;
	uint8_t *expected = malloc(TPCK_CHUNK_BYTES);
	bool good;

	snprintf(path, sizeof path, "%s/resume.image", welcome.session);
	h = map(path, &size, false);
	good = h && h->magic == TPCK_IMAGE_MAGIC && h->footer == tpck_image_footer(h) && h->step == step &&
	       h->generation == welcome.offer_generation && h->data_bytes == set.bytes && h->rows == chunk_count() &&
	       h->state == TPCK_IMAGE_COMMITTED;
	for (uint64_t i = 0; good && i < chunk_count(); i++) {
		const struct tpck_image_row *row = (void *)((char *)h + TPCK_IMAGE_INDEX_AT);

		pattern(expected, chunk_bytes(i), chunk_seed(i, step));
		good = memcmp((uint8_t *)h + TPCK_IMAGE_DATA_AT + i * TPCK_CHUNK_BYTES, expected, chunk_bytes(i)) == 0 &&
		       row[i].order == i && row[i].bytes == chunk_bytes(i);
	}
	if (h)
		munmap(h, size);
	free(expected);
	return good;
}

static void reattach(void)
{
	close(fd);
	attach_or_start();
	hello(TPCK_HELLO_ADOPT);
}

/* One iteration: the log's record, an image if one is free, HELD. */
static void iterate(uint64_t step)
{
	struct tpck_held held = {.generation = welcome.generation, .step = step};
	int i;

	log_step(step);
	control->status.boundaries = step;
	control->status.iteration_ns = set.iteration_ns;
	i = take_image();
	/* Who is to die at this step does so, and has the step before, however long the agent takes to free one, if there are any. */
	for (int wait = 0; i < 0 && image_count && set.kill_at && (step == set.kill_at || step + 1 == set.kill_at) && wait < 20000; wait++) {
		usleep(1000);
		i = take_image();
	}
	if (i < 0) {
		printf("skip %" PRIu64 "\n", step);
		return;
	}
	fill(images[i], step);
	if (step == set.kill_at)
		raise(SIGKILL);
	atomic_store(&images[i]->state, TPCK_IMAGE_HELD);
	control->status.last_step = step;
	control->status.captured++;
	held.image = (uint32_t)i;
	if (!set.silent)
		send_message(TPCK_MSG_HELD, &held, sizeof held, NULL, 0);
	printf("held %" PRIu64 "\n", step);
	for (int wait = 0; set.wait_commit && wait < 5000; wait++) {
		if (atomic_load(&images[i]->state) != TPCK_IMAGE_HELD)
			break;
		if (wait == 1000) {
			reattach();
			send_message(TPCK_MSG_HELD, &held, sizeof held, NULL, 0);
		}
		usleep(1000);
	}
	/* What all ranks hold is compared once it can no longer change under the agent's eyes. */
	if (set.world > 1)
		usleep(20000);
	if (set.wait_commit && atomic_load(&images[i]->state) == TPCK_IMAGE_ABANDONED)
		printf("abandoned %" PRIu64 "\n", step);
	for (int wait = 0; set.wait_durable && wait < 2000 && atomic_load(&control->durable_step) < step; wait++)
		usleep(5000);
	if (set.wait_durable)
		printf("durable %" PRIu64 "\n", (uint64_t)atomic_load(&control->durable_step));
}

static void read_options(int argc, char **argv)
{
	static const struct option options[] = {
		{"steps", 1, 0, 's'}, {"kill-at", 1, 0, 'k'}, {"exit-at", 1, 0, 'e'}, {"bytes", 1, 0, 'b'},
		{"segment", 1, 0, 'g'}, {"images", 1, 0, 'i'}, {"pause", 1, 0, 'p'}, {"status", 1, 0, 'x'},
		{"fresh", 0, 0, 'f'}, {"no-wait", 0, 0, 'n'}, {"wait-durable", 0, 0, 'd'}, {"want", 1, 0, 'w'},
		{"arg", 1, 0, 'a'}, {"executable", 1, 0, 'E'}, {"no-ending", 0, 0, 'q'}, {"digests", 0, 0, 'D'},
		{"lie", 0, 0, 'L'}, {"kill-forward", 0, 0, 'W'}, {"unresumable", 0, 0, 'u'}, {"silent", 0, 0, 'S'}, {"rank", 1, 0, 'r'},
		{"ordinal", 1, 0, 'o'}, {"world", 1, 0, 'N'}, {"launch", 1, 0, 'l'}, {"more-at", 1, 0, 'm'}, {"more-images", 0, 0, 'M'},
		{"repeats", 0, 0, 'R'}, {"iteration-ns", 1, 0, 'I'}, {0, 0, 0, 0},
	};
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 's': set.steps = strtoull(optarg, NULL, 0); break;
		case 'k': set.kill_at = strtoull(optarg, NULL, 0); break;
		case 'e': set.exit_at = strtoull(optarg, NULL, 0); break;
		case 'b': set.bytes = strtoull(optarg, NULL, 0); break;
		case 'g': set.segment = strtoull(optarg, NULL, 0); break;
		case 'i': set.images = (unsigned)atoi(optarg); break;
		case 'p': set.pause_ms = (unsigned)atoi(optarg); break;
		case 'x': set.status = atoi(optarg); break;
		case 'f': set.fresh = true; break;
		case 'n': set.wait_commit = false; break;
		case 'd': set.wait_durable = true; break;
		case 'w': set.want = strtoull(optarg, NULL, 0); break;
		case 'a': set.arguments[set.argument_count++] = optarg; break;
		case 'E': set.executable = optarg; break;
		case 'q': set.no_ending = true; break;
		case 'D': set.digests = true; break;
		case 'L': set.lie = true; break;
		case 'W': set.kill_forward = true; break;
		case 'u': set.unresumable = true; break;
		case 'S': set.silent = true; break;
		case 'M': set.more_images = true; break;
		case 'R': set.repeats = true; break; /* a log that can be packed */
		case 'r': set.rank = (unsigned)atoi(optarg); break;
		case 'o': set.ordinal = (unsigned)atoi(optarg); break;
		case 'N': set.world = (unsigned)atoi(optarg); break;
		case 'l': set.launch = strtoull(optarg, NULL, 0); break;
		case 'm': set.more_at = strtoull(optarg, NULL, 0); break; /* a collective more than the other ranks */
		case 'I': set.iteration_ns = strtoull(optarg, NULL, 0); break;
		default: exit(2);
		}
	}
}

int main(int argc, char **argv)
{
	static char folder[512];
	uint64_t from = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	read_options(argc, argv);
	set.job = getenv("TRANSPCKPT_JOB");
	if (!set.job || !getenv("TRANSPCKPT_SHM"))
		return 2;
	snprintf(folder, sizeof folder, "%s/%s", getenv("TRANSPCKPT_SHM"), set.job);
	set.folder = folder;
	attach_or_start();
	hello(set.fresh ? 0 : TPCK_HELLO_RESUME);
	if (welcome.offer) {
		printf("offer %" PRIu64 " %" PRIu64 "\n", welcome.offer_generation, welcome.offer_step);
		if (!image_is(welcome.offer_step) || !log_is(welcome.offer_step)) {
			printf("offer is wrong\n");
			return 3;
		}
		if (set.unpacked)
			printf("unpacked %u segments\n", set.unpacked);
		from = welcome.offer_step;
		segment_open(welcome.log_sequence, false);
		if (set.kill_forward)
			raise(SIGKILL);
		send_message(TPCK_MSG_RESUMED, NULL, 0, NULL, 0);
	} else {
		segment_open(0, true);
	}
	if (set.kill_at == 0)
		raise(SIGKILL);
	prepare();
	for (uint64_t step = from + 1; step <= set.steps; step++) {
		iterate(step);
		if (step == set.exit_at)
			_exit(9);
		usleep(set.pause_ms * 1000);
	}
	if (!set.no_ending) {
		struct tpck_ending ending = {.status = set.status};
		int type;

		send_message(TPCK_MSG_ENDING, &ending, sizeof ending, NULL, 0);
		while ((type = receive(NULL, 0, 60)) && type != TPCK_MSG_BYE)
			;
		printf(type ? "bye\n" : "no bye\n");
	}
	atomic_store(&control->exit_status, 1 + (uint64_t)set.status);
	return set.status;
}
