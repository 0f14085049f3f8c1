/* SPDX-License-Identifier: Apache-2.0 */
/* Folders: by which path a descriptor's was opened, what stands for one that is not there, and what a listing showed. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/follow/follow_private.h"
#include "runtime/track/threads.h"

/* Listings that a program may still be reading from: so many of the latest stay. */
enum { BUCKETS = 256, NAMES_MAX = 4096, LISTS = 256 };

/* What the kernel calls a folder, and the path by which the program opened it last, where that is another. */
struct name {
	struct name *next;
	char *path;
	char link[];
};

static struct name *names[BUCKETS] TPCK_LARGE;
static unsigned serial, lists_made;
static char *lists[LISTS] TPCK_LARGE; /* by their turn; the lock is held */
static struct name *gone[LISTS] TPCK_LARGE; /* names that went last: somebody may be reading one. The same */
static unsigned names_gone;
static _Atomic unsigned count;
static char scratch_folder[TPCK_FOLLOW_FOLDER] TPCK_LARGE;
static tpck_spin lock;

static struct name **bucket_of(const char *link)
{
	return &names[tpck_follow_digest(link) % BUCKETS];
}

/* The lock is held. */
static struct name *named(const char *link)
{
	struct name *found = *bucket_of(link);

	while (found && strcmp(found->link, link) != 0)
		found = found->next;
	return found;
}

static struct name *name_add(const char *link, const char *path)
{
	struct name *made = count < NAMES_MAX ? malloc(sizeof *made + strlen(link) + 1) : NULL;

	if (!made)
		return NULL;
	made->path = strdup(path);
	strcpy(made->link, link);
	if (!made->path) {
		free(made);
		return NULL;
	}
	tpck_spin_lock(&lock);
	made->next = *bucket_of(link);
	*bucket_of(link) = made;
	count++;
	tpck_spin_unlock(&lock);
	return made;
}

static void name_remove(const char *link)
{
	struct name **at, *found, *old = NULL;

	tpck_spin_lock(&lock);
	at = bucket_of(link);
	while (*at && strcmp((*at)->link, link) != 0)
		at = &(*at)->next;
	found = *at;
	if (found) {
		*at = found->next;
		count--;
		old = gone[names_gone % LISTS];
		gone[names_gone++ % LISTS] = found;
	}
	tpck_spin_unlock(&lock);
	if (old)
		free(old->path);
	free(old);
}

bool tpck_folders_link(int fd, char *link, size_t size)
{
	char self[64];
	ssize_t got;

	snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
	got = tpck_sys_readlink(self, link, size - 1);
	if (got < 0)
		return false;
	link[got] = '\0';
	return true;
}

void tpck_folders_opened(int fd, const char *path)
{
	char link[TPCK_FOLLOW_PATH], *copy, *old = NULL;
	struct name *known;
	struct stat found;
	int saved = errno;

	if (!tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH) && S_ISDIR(found.st_mode) &&
	    tpck_folders_link(fd, link, sizeof link) && !tpck_folders_is_ours(link)) {
		tpck_spin_lock(&lock);
		known = named(link);
		tpck_spin_unlock(&lock);
		if (!known && strcmp(link, path) != 0) {
			name_add(link, path);
		} else if (known && strcmp(known->path, path) != 0 && (copy = strdup(path))) {
			tpck_spin_lock(&lock);
			old = known->path;
			known->path = copy;
			tpck_spin_unlock(&lock);
			free(old);
		}
	}
	errno = saved;
}

bool tpck_folders_named(const char *link, char *path, size_t size)
{
	const struct name *known;

	/* A forked child may ask, of a program whose other threads held the lock. */
	if (!atomic_load(&count))
		return false;
	tpck_spin_lock(&lock);
	known = named(link);
	if (known)
		snprintf(path, size, "%s", known->path);
	tpck_spin_unlock(&lock);
	return known != NULL;
}

void tpck_folders_forward(const char *scratch)
{
	snprintf(scratch_folder, sizeof scratch_folder, "%s", scratch);
}

bool tpck_folders_is_ours(const char *link)
{
	size_t length = strlen(scratch_folder);

	return length && strncmp(link, scratch_folder, length) == 0 && link[length] == '/';
}

static bool folder_new(char *path, size_t size, const char *kind)
{
	snprintf(path, size, "%s/%s.%u", scratch_folder, kind, __atomic_fetch_add(&serial, 1, __ATOMIC_RELAXED));
	return scratch_folder[0] && !tpck_sys_mkdirat(AT_FDCWD, path, 0700);
}

bool tpck_folders_is_standin(const char *link)
{
	return tpck_folders_is_ours(link) && strncmp(link + strlen(scratch_folder), "/folder.", 8) == 0;
}

static const char *find_standin(const char *path)
{
	const struct name *found = NULL;

	tpck_spin_lock(&lock);
	for (unsigned b = 0; b < BUCKETS && !found; b++)
		for (const struct name *name = names[b]; name && !found; name = name->next)
			if (strcmp(name->path, path) == 0 && tpck_folders_is_standin(name->link))
				found = name;
	tpck_spin_unlock(&lock);
	return found ? found->link : NULL;
}

const char *tpck_folders_standin(const char *path)
{
	const char *there = find_standin(path);
	char made[TPCK_FOLLOW_FOLDER + 32];
	const struct name *name;

	if (there || !folder_new(made, sizeof made, "folder"))
		return there;
	name = name_add(made, path);
	return name ? name->link : NULL;
}

void tpck_folders_gone(const char *path)
{
	const char *link = find_standin(path);

	if (!link)
		return;
	name_remove(link);
	tpck_sys_unlinkat(AT_FDCWD, link, AT_REMOVEDIR);
}

/* A folder of empty files and folders. */
static void list_remove(const char *folder)
{
	int fd = tpck_sys_openat(AT_FDCWD, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	char buffer[4096];
	ssize_t got;

	name_remove(folder);
	while (fd >= 0 && (got = tpck_sys_getdents(fd, buffer, sizeof buffer)) > 0)
		for (char *at = buffer; at < buffer + got; at += ((struct dirent64 *)at)->d_reclen)
			if (tpck_sys_unlinkat(fd, ((struct dirent64 *)at)->d_name, 0))
				tpck_sys_unlinkat(fd, ((struct dirent64 *)at)->d_name, AT_REMOVEDIR);
	if (fd >= 0)
		tpck_sys_close(fd);
	tpck_sys_unlinkat(AT_FDCWD, folder, AT_REMOVEDIR);
}

/* A program that lists a folder each time that it saves would fill memory, and the table. */
static void list_keep(const char *folder)
{
	char *made = strdup(folder), *old;

	if (!made)
		return;
	tpck_spin_lock(&lock);
	old = lists[lists_made % LISTS];
	lists[lists_made++ % LISTS] = made;
	tpck_spin_unlock(&lock);
	if (old)
		list_remove(old);
	free(old);
}

const char *tpck_folders_list(const struct tpck_record_file *listing, const char *of)
{
	static __thread char folder[TPCK_FOLLOW_FOLDER + 32];
	const char **entries = calloc(listing->names + 1, sizeof *entries);
	const char *at = (const char *)(listing + 1);
	char path[TPCK_FOLLOW_FOLDER + 320], called[TPCK_FOLLOW_PATH];

	if (!entries || !folder_new(folder, sizeof folder, "list")) {
		free(entries);
		return NULL;
	}
	for (uint32_t i = 0; i < listing->names; i++) {
		entries[i] = at;
		at += strlen(at) + 1;
	}
	/* tmpfs lists what was made last first. */
	for (uint32_t i = listing->names; i-- > 0;) {
		snprintf(path, sizeof path, "%s/%s", folder, tpck_learnt_renumbered(of, entries[i] + 1, called, sizeof called));
		if (entries[i][0] == 'd') {
			tpck_sys_mkdirat(AT_FDCWD, path, 0700);
		} else if (entries[i][0] == 'l') {
			tpck_sys_symlinkat("?", AT_FDCWD, path);
		} else {
			int fd = tpck_sys_openat(AT_FDCWD, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

			if (fd >= 0)
				tpck_sys_close(fd);
		}
	}
	free(entries);
	name_add(folder, of);
	list_keep(folder);
	return folder;
}

void tpck_folders_forked(void)
{
	/* The child's folders are not its parent's. */
	serial += (unsigned)tpck_sys_getpid() << 12;
	tpck_spin_unlock(&lock);
}
