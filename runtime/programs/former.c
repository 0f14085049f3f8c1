/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What processes of the run that is gone on from have noted (writings.h). Some may outlive their job by a moment, as they have been sent more than they have
 * written: they go on noting in the same memory. So that stays mapped, and is read again before something is taken back; and processes that are still there are
 * waited for: until they have noted nothing for two seconds, and for ten seconds in all.
 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/kernel.h"
#include "runtime/programs/programs_private.h"
#include "runtime/view/view.h"
#include "runtime/wire/segment.h"

#define PATIENCE_NS 2000000000ull
#define PATIENCE_MOST_NS 10000000000ull
/* An end that comes about when a boundary does may be in the log behind it. */
#define ABOUT_NS 1000000000ull
/* More files than that are read once. */
enum { KEPT = 8, WORDS = (TPCK_WRITINGS_MOST + 63) / 64 };
static struct tpck_writings *kept[KEPT];
static bool is_handed_back[KEPT]; /* hand_back() in agent/session/post_mortem.c */
static _Atomic uint32_t kept_count;
/* Of entries that were looked at, a bit each; children share them. */
static _Atomic uint64_t (*seen)[WORDS];

static bool is_done_again(uint64_t made, uint32_t writer)
{
	return made > tpck_forward_boundary_ns() || !tpck_known_ended(writer);
}

static uint32_t writer_of(const struct tpck_writings *from, const struct tpck_writing *entry)
{
	uint32_t of_all = atomic_load(&from->head.writer);

	return of_all ? of_all : entry->writer;
}

/* Whether it is an entry of a process that is made again. */
static bool counts(const struct tpck_writings *from, const struct tpck_writing *entry)
{
	uint32_t kind = atomic_load(&entry->kind);

	return kind >= TPCK_WRITING_APPENDED && kind <= TPCK_WRITING_CHANGED && entry->path[0] == '/' && memchr(entry->path, '\0', sizeof entry->path) &&
	       is_done_again(entry->made_ns, writer_of(from, entry));
}

/* `number`: of the kept one; KEPT: it is none. What a run of no snapshot had inherited is known from where it had gone on from. */
static void read_all(const struct tpck_writings *from, uint32_t number, bool handed_back, struct tpck_writings *to)
{
	uint32_t count = tpck_writings_count(from);

	for (uint32_t i = 0; i < count; i++) {
		const struct tpck_writing *entry = &from->entry[i];
		uint32_t kind = atomic_load(&entry->kind);
		struct tpck_writing *copy;

		/* One of no kind yet may get one. */
		if (kind == TPCK_WRITING_NONE || kind == TPCK_WRITING_BEGUN || (handed_back && atomic_load(&entry->inherited)) || (number < KEPT && atomic_load(&seen[number][i / 64]) >> (i & 63) & 1) ||
		    (number < KEPT && atomic_fetch_or(&seen[number][i / 64], 1ull << (i & 63)) >> (i & 63) & 1) || !counts(from, entry))
			continue;
		copy = tpck_writings_take(to);
		memcpy((char *)copy + sizeof copy->kind, (const char *)entry + sizeof entry->kind, sizeof *copy - sizeof copy->kind);
		copy->writer = writer_of(from, entry);
		atomic_store(&copy->ended_ns, 0);
		copy->former = number < KEPT ? (uint16_t)(1 + number * TPCK_WRITINGS_MOST + i) : 0;
		atomic_store(&copy->inherited, true);
		atomic_fetch_add(&to->head.inherited, 1);
		atomic_store(&copy->kind, kind);
	}
}

static bool lacks(const struct tpck_writings *from)
{
	uint64_t passed = atomic_load(&from->head.passed_ns);
	uint32_t of_all = atomic_load(&from->head.writer);

	for (uint32_t i = 0; i < TPCK_WRITINGS_MISSED; i++) {
		uint64_t made = atomic_load(&from->head.missed[i].made_ns);

		if (made && is_done_again(made, of_all ? of_all : atomic_load(&from->head.missed[i].writer)))
			return true;
	}
	return passed && passed + ABOUT_NS > tpck_forward_boundary_ns();
}

/* The first of them needs memory that children share; without that none is kept. */
static bool keeps(struct tpck_writings *from)
{
	uint32_t count = atomic_load(&kept_count);

	if (!seen) {
		void *at = tpck_sys_mmap(NULL, sizeof *seen * KEPT, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

		seen = at == MAP_FAILED ? NULL : at;
	}
	if (!seen || count == KEPT)
		return false;
	kept[count] = from;
	atomic_store(&kept_count, count + 1);
	return true;
}

/* False: it cannot be read, or lacks something. */
static bool inherit(const char *session, const char *name, struct tpck_writings *to)
{
	bool handed_back = strncmp(name, TPCK_WRITTEN_BEHIND TPCK_GENERATION, sizeof TPCK_WRITTEN_BEHIND TPCK_GENERATION - 1) == 0, whole;
	struct tpck_writings *from = tpck_writings_open(session, name);

	if (!from)
		return false;
	if (keeps(from)) {
		is_handed_back[atomic_load(&kept_count) - 1] = handed_back;
		read_all(from, atomic_load(&kept_count) - 1, handed_back, to);
		return true;
	}
	read_all(from, KEPT, handed_back, to);
	whole = !lacks(from);
	tpck_writings_close(from);
	return whole;
}

bool tpck_former_inherit(const char *session, struct tpck_writings *to)
{
	int folder = tpck_sys_openat(AT_FDCWD, session, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	bool is_there = false, whole = true;
	char buffer[4096];
	ssize_t got;

	while (folder >= 0 && (got = tpck_sys_getdents(folder, buffer, sizeof buffer)) > 0)
		for (char *at = buffer; at < buffer + got; at += ((struct dirent64 *)at)->d_reclen) {
			const char *name = ((struct dirent64 *)at)->d_name;

			if (strncmp(name, TPCK_WRITTEN_BEHIND, sizeof TPCK_WRITTEN_BEHIND - 1) != 0)
				continue;
			is_there = true;
			whole = inherit(session, name, to) && whole;
			tpck_sys_unlinkat(folder, name, 0);
		}
	if (folder >= 0)
		tpck_sys_close(folder);
	/* The file went with the memory that it was in; the log says who wrote. */
	return whole && (is_there || !tpck_known_wrote());
}

bool tpck_former_lack(void)
{
	uint32_t count = atomic_load(&kept_count);

	for (uint32_t i = 0; i < count; i++)
		if (lacks(kept[i]))
			return true;
	return false;
}

bool tpck_former_is_kept(void)
{
	return atomic_load(&kept_count) > 0;
}

void tpck_former_read(struct tpck_writings *to)
{
	uint32_t count = atomic_load(&kept_count);

	for (uint32_t i = 0; i < count; i++)
		read_all(kept[i], i, is_handed_back[i], to);
}

/* Processes may be looking. */
void tpck_former_end(void)
{
	atomic_store(&kept_count, 0);
}

int64_t tpck_former_wrote(const struct tpck_writing *entry)
{
	uint32_t place = entry->former ? entry->former - 1u : KEPT * TPCK_WRITINGS_MOST;
	const struct tpck_writing *from = place < atomic_load(&kept_count) * TPCK_WRITINGS_MOST ? &kept[place / TPCK_WRITINGS_MOST]->entry[place % TPCK_WRITINGS_MOST] : entry;

	/* The place may be another one's by now. */
	if (from->when_ns != entry->when_ns || from->inode != entry->inode || from->device != entry->device)
		from = entry;
	return atomic_load(&from->own) + atomic_load(&from->doing);
}

bool tpck_former_lives(const struct tpck_writing *entry)
{
	int32_t process = atomic_load(&entry->process);
	uint64_t started = process > 0 ? tpck_view_process_started(process) : 0;

	return started && started != TPCK_VIEW_STARTED_UNKNOWN && started == entry->started;
}

/* What changes as they note something. */
static uint64_t noted(void)
{
	uint64_t sum = 0;

	for (uint32_t k = 0, count = atomic_load(&kept_count); k < count; k++) {
		sum += atomic_load(&kept[k]->head.taken);
		for (uint32_t i = 0; i < tpck_writings_count(kept[k]); i++)
			sum += (uint64_t)atomic_load(&kept[k]->entry[i].own);
	}
	return sum;
}

/* begins: from now on, where nobody has waited yet. */
static bool is_patient(struct tpck_writings_head *of, bool begins)
{
	uint64_t now = tpck_clock_monotonic_ns(), nobody = 0, sum;

	if (begins) {
		sum = noted();
		if (atomic_compare_exchange_strong(&of->patient_ns, &nobody, now + PATIENCE_NS))
			atomic_store(&of->impatient_ns, now + PATIENCE_MOST_NS);
		/* One that was sent much writes it down one by one, and ends. */
		else if (atomic_exchange(&of->patient_sum, sum) != sum && now < atomic_load(&of->patient_ns))
			atomic_store(&of->patient_ns, now + PATIENCE_NS < atomic_load(&of->impatient_ns) ? now + PATIENCE_NS : atomic_load(&of->impatient_ns));
	}
	return !atomic_load(&of->patient_ns) || now < atomic_load(&of->patient_ns);
}

void tpck_former_await(struct tpck_writings_head *of)
{
	struct timespec pause = {0, 5000000};
	uint32_t count = is_patient(of, false) ? atomic_load(&kept_count) : 0;
	int32_t gone = 0;

	for (uint32_t k = 0; k < count; k++)
		for (uint32_t i = 0; i < tpck_writings_count(kept[k]); i++) {
			struct tpck_writing *entry = &kept[k]->entry[i];
			int32_t process = atomic_load(&entry->process);

			if (!process || !counts(kept[k], entry))
				continue;
			while (process != gone && tpck_former_lives(entry)) {
				if (!is_patient(of, true))
					return;
				tpck_sys_clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
			}
			gone = process;
			atomic_store(&entry->process, 0);
		}
}
