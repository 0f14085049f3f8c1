/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/base/kernel.h"
#include "runtime/base/shared_file.h"
#include "runtime/network/speakers.h"
#include "runtime/wire/segment.h"

#define MAGIC 0x7372656b61657073ull
enum { PATH = 320, PROGRAMS = sizeof ((struct tpck_speakers *)0)->program / sizeof ((struct tpck_speakers *)0)->program[0] };

/* Without a folder. */
static bool private_ones(struct tpck_speakers_of *of)
{
	void *at = tpck_sys_mmap(NULL, sizeof *of->state, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return false;
	of->mail = tpck_mail_new(TPCK_SPEAKERS_MAIL, NULL);
	of->state = of->mail ? at : NULL;
	if (!of->mail)
		tpck_sys_munmap(at, sizeof *of->state);
	return of->mail != NULL;
}

static bool paths(const char *session, char state[PATH], char mail[PATH])
{
	return snprintf(state, PATH, "%s/" TPCK_SPEAKERS, session) < PATH && snprintf(mail, PATH, "%s/" TPCK_SAID, session) < PATH;
}

bool tpck_speakers_new(struct tpck_speakers_of *of, const char *session)
{
	char state[PATH], mail[PATH];

	if (!session)
		return private_ones(of);
	if (!paths(session, state, mail) || !(of->state = tpck_shared_file_new(state, sizeof *of->state)))
		return false;
	of->mail = tpck_mail_new(TPCK_SPEAKERS_MAIL, mail);
	if (!of->mail) {
		tpck_sys_munmap(of->state, sizeof *of->state);
		of->state = NULL;
		return false;
	}
	return true;
}

void tpck_speakers_move(struct tpck_speakers *from, const char *session)
{
	char state[PATH], mail[PATH];

	if (atomic_load(&from->mail_moved) || !paths(session, state, mail))
		return;
	memcpy(from->mail, mail, sizeof from->mail);
	atomic_store(&from->mail_moved, true);
}

bool tpck_speakers_moved(const struct tpck_speakers_of *of)
{
	return !of->follows && atomic_load(&of->state->mail_moved) && tpck_mail_is_empty(of->mail);
}

void tpck_speakers_follow(struct tpck_speakers_of *of)
{
	struct tpck_mail *to = of->follows ? NULL : tpck_mail_open(of->state->mail, TPCK_SPEAKERS_MAIL);

	of->follows = true;
	if (to)
		of->mail = to;
}

void tpck_speakers_ready(struct tpck_speakers *of)
{
	of->version = TPCK_WIRE_VERSION;
	atomic_store(&of->magic, MAGIC);
}

int tpck_speakers_open(struct tpck_speakers_of *of, const char *session)
{
	char state[PATH], mail[PATH];
	uint64_t magic;

	of->mail = NULL;
	if (!paths(session, state, mail) || !(of->state = tpck_shared_file_open(state, sizeof *of->state)))
		return EINVAL;
	magic = atomic_load(&of->state->magic);
	if (magic == MAGIC && of->state->version == TPCK_WIRE_VERSION)
		of->mail = tpck_mail_open(mail, TPCK_SPEAKERS_MAIL);
	if (of->mail)
		return 0;
	tpck_sys_munmap(of->state, sizeof *of->state);
	of->state = NULL;
	return magic ? EINVAL : EAGAIN;
}

/* Whoever has it mapped is known by its path, as the kernel says it, which follows. */
void tpck_speakers_rename(const char *from, const char *to)
{
	char state[2][PATH], mail[2][PATH];

	if (!paths(from, state[0], mail[0]) || !paths(to, state[1], mail[1]))
		return;
	(void)tpck_sys_renameat(AT_FDCWD, mail[0], AT_FDCWD, mail[1]);
	(void)tpck_sys_renameat(AT_FDCWD, state[0], AT_FDCWD, state[1]);
}

void tpck_speakers_add(struct tpck_speakers *of, int pid, uint32_t number, unsigned flags)
{
	uint32_t at;

	/* A program that is looked for along a path comes by for each folder of it. */
	if (tpck_speakers_number(of, pid) == number)
		return;
	at = atomic_fetch_add(&of->started, 1) % PROGRAMS;
	atomic_store(&of->program[at], 0);
	atomic_store(&of->flags[at], (uint8_t)flags);
	atomic_store(&of->program[at], (uint64_t)(uint32_t)pid << 32 | number);
}

/* The last one counts: a process's id comes back. */
static uint32_t find(const struct tpck_speakers *of, int pid, unsigned *flags)
{
	uint32_t end = atomic_load(&of->started), count = end < PROGRAMS ? end : PROGRAMS;

	for (uint32_t i = 1; i <= count; i++) {
		uint64_t entry = atomic_load(&of->program[(end - i) % PROGRAMS]);

		*flags = atomic_load(&of->flags[(end - i) % PROGRAMS]);
		if (entry >> 32 == (uint32_t)pid)
			return (uint32_t)entry;
	}
	return 0;
}

uint32_t tpck_speakers_number(const struct tpck_speakers *of, int pid)
{
	unsigned flags;

	return find(of, pid, &flags);
}

uint32_t tpck_speakers_known(const struct tpck_speakers *of, int pid)
{
	unsigned flags;
	uint32_t number = find(of, pid, &flags);

	return number && !(flags & TPCK_SPEAKER_GUESS) ? number : 0;
}

unsigned tpck_speakers_flags(const struct tpck_speakers *of, int pid)
{
	unsigned flags;

	return find(of, pid, &flags) ? flags : 0;
}

bool tpck_speakers_has(const struct tpck_speakers *of, uint32_t number)
{
	for (int i = 0; i < PROGRAMS; i++)
		if ((uint32_t)atomic_load(&of->program[i]) == number)
			return true;
	return false;
}

void tpck_speakers_clear(struct tpck_speakers *of)
{
	for (int i = 0; i < PROGRAMS; i++)
		atomic_store(&of->program[i], 0);
}

void tpck_speakers_copy(struct tpck_speakers *to, const struct tpck_speakers *from)
{
	for (int i = 0; i < PROGRAMS; i++) {
		atomic_store(&to->flags[i], atomic_load(&from->flags[i]));
		atomic_store(&to->program[i], atomic_load(&from->program[i]));
	}
	atomic_store(&to->started, atomic_load(&from->started));
}
