/* SPDX-License-Identifier: Apache-2.0 */
/* Where a published file is now: it, or a folder that it is in, may have another name since. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/store/sums.h"

/* So many files of one folder that is gone are looked for in vain, and so many names in the one above are looked at. */
enum { MISSES = 4, NAMES = 16384 };

struct name {
	uint64_t inode;
	char *text;
};

struct tpck_sums_finder {
	char above[PATH_MAX];   /* the folder whose names these are */
	struct name *names;
	size_t count;
	char gone[PATH_MAX];    /* below it, what is not there any more; */
	unsigned misses;        /* how many of its files were not found, */
	const char *found;      /* and the name by which the last one was */
};

struct tpck_sums_finder *tpck_sums_finder_new(void)
{
	return calloc(1, sizeof(struct tpck_sums_finder));
}

static void forget(struct tpck_sums_finder *finder)
{
	for (size_t i = 0; i < finder->count; i++)
		free(finder->names[i].text);
	free(finder->names);
	*finder = (struct tpck_sums_finder){0};
}

void tpck_sums_finder_free(struct tpck_sums_finder *finder)
{
	if (finder) {
		forget(finder);
		free(finder);
	}
}

static void list(struct tpck_sums_finder *finder, const char *above)
{
	struct dirent *entry;
	size_t room = 0;
	DIR *folder;

	forget(finder);
	strcpy(finder->above, above);
	folder = opendir(*above ? above : "/");
	while (folder && finder->count < NAMES && (entry = readdir(folder))) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if (finder->count == room) {
			struct name *more = reallocarray(finder->names, room = room ? room * 2 : 64, sizeof *more);

			if (!more)
				break;
			finder->names = more;
		}
		finder->names[finder->count] = (struct name){entry->d_ino, strdup(entry->d_name)};
		if (!finder->names[finder->count].text)
			break;
		finder->count++;
	}
	if (folder)
		closedir(folder);
}

/* Whether it is at `rest` below what has this name now; then `path` is the whole of it. */
static bool is_at(const struct tpck_sums_finder *finder, const char *name, const char *rest, const struct tpck_sums *sums,
		  char path[PATH_MAX], struct stat *found)
{
	int length = snprintf(path, PATH_MAX, "%s/%s%s", finder->above, name, rest);

	return length < PATH_MAX && !lstat(path, found) && tpck_sums_of(sums, found);
}

static const char *look(struct tpck_sums_finder *finder, const char *rest, const struct tpck_sums *sums, char path[PATH_MAX],
			struct stat *found)
{
	if (finder->found && is_at(finder, finder->found, rest, sums, path, found))
		return finder->found;
	for (size_t i = 0; i < finder->count; i++)
		if ((*rest || finder->names[i].inode == sums->inode) && is_at(finder, finder->names[i].text, rest, sums, path, found))
			return finder->names[i].text;
	return NULL;
}

bool tpck_sums_find(struct tpck_sums_finder *finder, struct tpck_sums *sums, struct stat *found)
{
	char path[PATH_MAX], gone[PATH_MAX], *rest = NULL, *slash, *moved;

	if (!lstat(sums->path, found))
		return true;
	if (!finder || (errno != ENOENT && errno != ENOTDIR) || *sums->path != '/' || strlen(sums->path) >= sizeof path)
		return false;
	/* The lowest folder that is there, and of what was in it the name that is not. */
	strcpy(path, sums->path);
	do {
		slash = strrchr(path, '/');
		strcpy(gone, path);
		*slash = '\0';
	} while (*path && lstat(path, found));
	rest = sums->path + strlen(gone);
	if (strcmp(finder->above, path) != 0 || !finder->names)
		list(finder, path);
	if (strcmp(finder->gone, gone) != 0) {
		strcpy(finder->gone, gone);
		finder->misses = 0;
		finder->found = NULL;
	}
	if (finder->misses >= MISSES)
		return false;
	finder->found = look(finder, rest, sums, path, found);
	finder->misses += !finder->found;
	moved = finder->found ? strdup(path) : NULL;
	if (!moved)
		return false;
	free(sums->path);
	sums->path = moved;
	return true;
}
