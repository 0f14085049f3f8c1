/* SPDX-License-Identifier: Apache-2.0 */
/* The durable tier: a folder of a file system, local or shared. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/door.h"
#include "runtime/base/lock_order.h"
#include "runtime/base/log.h"
#include "runtime/store/container.h"
#include "runtime/store/file.h"
#include "runtime/store/history.h"
#include "runtime/store/quarantine.h"
#include "runtime/store/tier.h"

struct durable_tier {
	struct tpck_tier tier;
	enum tpck_writer_engine engine;
	pthread_mutex_t lock;       /* of the writer: one put at a time */
	struct tpck_writer *writer; /* made at the first put */
};

static int full_path(struct tpck_tier *tier, const char *path, char *full, size_t size, struct tpck_error *err)
{
	if (!path[0])
		return snprintf(full, size, "%s", tier->root) < (int)size ? 0 : -ENAMETOOLONG;
	if (tpck_path_join(full, size, tier->root, path))
		return tpck_error_set(err, ENAMETOOLONG, "opening %s/%s", tier->root, path);
	return 0;
}

/* A tier's folder while it is used. Who reads what others have, as `transpckpt ls` may, has it by its path. */
struct opened {
	struct tpck_below below;
	char path[TPCK_PATH_MAX]; /* of what is asked for, as it is said */
};

static void close_root(struct opened *opened)
{
	if (opened->below.at >= 0)
		close(opened->below.at);
}

/* The folder above, which a setting names and may be a group's, or which is the user's state folder. */
static int look_above(const struct tpck_tier *tier, struct tpck_error *err)
{
	char above[TPCK_PATH_MAX];
	int folder;

	snprintf(above, sizeof above, "%.*s", (int)(strrchr(tier->root, '/') - tier->root), tier->root);
	folder = tier->in_state ? tpck_door_open(AT_FDCWD, above, 0) : -ENOENT;
	if (folder >= 0)
		close(folder);
	return folder == -EPERM ? tpck_door_refused(above, folder, "TRANSPCKPT_DIR", err) : 0;
}

/* Somebody else's folder is neither written to nor, by an agent, believed. What is looked at is what is used: who may rename things
 * above it cannot put another one into its place in between. -ENOENT, without a text: it is not there. */
static int open_own(struct tpck_tier *tier, bool make, const char *path, struct opened *opened, struct tpck_error *err)
{
	int rc = full_path(tier, path, opened->path, sizeof opened->path, err), root;

	opened->below.at = -1;
	if (!rc)
		rc = look_above(tier, err);
	if (rc)
		return rc;
	root = tpck_door_open(AT_FDCWD, tier->root, 0);
	if (root == -ENOENT && make) {
		rc = tpck_folder_make(tier->root, err);
		if (rc)
			return rc;
		root = tpck_door_open(AT_FDCWD, tier->root, 0);
	}
	if (root == -ENOENT && !make)
		return -ENOENT;
	if (root < 0)
		return tpck_door_refused(tier->root, root, "TRANSPCKPT_DIR", err);
	opened->below = (struct tpck_below){root, strlen(tier->root) + 1};
	return 0;
}

/* What is about to be written, or removed, in a folder that is there. */
static int open_there(struct tpck_tier *tier, const char *path, struct opened *opened, struct tpck_error *err)
{
	int rc = open_own(tier, false, path, opened, err);

	return rc == -ENOENT ? tpck_error_set(err, ENOENT, "opening %s", opened->path) : rc;
}

static int open_readable(struct tpck_tier *tier, const char *path, struct opened *opened, struct tpck_error *err)
{
	if (tier->own_only)
		return open_there(tier, path, opened, err);
	opened->below = (struct tpck_below){AT_FDCWD, 0};
	return full_path(tier, path, opened->path, sizeof opened->path, err);
}

static int make_parent(const struct opened *opened, struct tpck_error *err)
{
	char parent[TPCK_PATH_MAX];

	snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(opened->path, '/') - opened->path), opened->path);
	return tpck_folder_make_below(opened->below, parent, err);
}

static const char *rest_of(const struct opened *opened)
{
	return strlen(opened->path) > opened->below.skip ? opened->path + opened->below.skip : ".";
}

/* Opened with O_DIRECT where the file system knows it. */
static int open_direct(int at, const char *path, int flags)
{
	int fd = openat(at, path, flags | O_DIRECT, 0600);

	return fd < 0 && errno == EINVAL ? openat(at, path, flags, 0600) : fd;
}

static int put_container(struct durable_tier *durable, const struct opened *opened, const struct tpck_source *source, uint64_t *end,
			 struct tpck_error *err)
{
	int fd, rc = make_parent(opened, err);

	if (rc)
		return rc;
	fd = open_direct(opened->below.at, rest_of(opened), O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return tpck_error_set(err, errno, "making container %s", opened->path);
	pthread_mutex_lock(&durable->lock);
	rc = durable->writer ? 0 : tpck_writer_open(&durable->writer, durable->engine, err);
	if (!rc)
		rc = tpck_writer_write(durable->writer, fd, opened->path, 0, source, end, err);
	pthread_mutex_unlock(&durable->lock);
	if (!rc && fsync(fd))
		rc = tpck_error_set(err, errno, "syncing container %s", opened->path);
	if (close(fd) && !rc)
		rc = tpck_error_set(err, errno, "closing container %s", opened->path);
	return rc;
}

static int durable_put(struct tpck_tier *tier, const char *path, const struct tpck_source *source,
		       uint64_t *bytes, struct tpck_error *err)
{
	char parent[TPCK_PATH_MAX];
	struct opened opened;
	uint64_t end = 0;
	int rc = open_own(tier, true, path, &opened, err);

	if (rc)
		return rc;
	rc = put_container((struct durable_tier *)tier, &opened, source, &end, err);
	if (!rc) {
		snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(opened.path, '/') - opened.path), opened.path);
		rc = tpck_folder_sync_below(opened.below, parent, err);
	}
	if (!rc)
		*bytes = end;
	close_root(&opened);
	return rc;
}

static int durable_mark(struct tpck_tier *tier, const char *path, const char *text, struct tpck_error *err)
{
	struct opened opened;
	int rc = open_own(tier, true, path, &opened, err);

	if (rc)
		return rc;
	rc = make_parent(&opened, err);
	if (!rc)
		rc = tpck_file_write_below(opened.below, opened.path, text, strlen(text), TPCK_FILE_DURABLE, err);
	close_root(&opened);
	return rc;
}

static int durable_commit(struct tpck_tier *tier, const char *path, const char *text, size_t size,
			  struct tpck_error *err)
{
	struct opened opened;
	int rc = open_there(tier, path, &opened, err);

	if (rc)
		return rc;
	rc = tpck_file_write_below(opened.below, opened.path, text, size, TPCK_FILE_DURABLE | TPCK_FILE_ABSENT, err);
	close_root(&opened);
	return rc;
}

static int read_whole(int fd, uint8_t *buffer, size_t wanted, size_t least, uint64_t offset)
{
	size_t used = 0;

	while (used < least) {
		ssize_t got = pread(fd, buffer + used, wanted - used, (off_t)(offset + used));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			return -ENODATA;
		used += (size_t)got;
	}
	return 0;
}

/* For reading: a link is followed, and a FIFO lets nobody wait. */
static int open_container(const struct opened *opened, const char *rest, bool aligned)
{
	enum { FLAGS = TPCK_DOOR_READ & ~O_NOFOLLOW };

	return aligned ? open_direct(opened->below.at, rest, FLAGS) : openat(opened->below.at, rest, FLAGS);
}

static int get_below(struct tpck_tier *tier, const struct opened *opened, const char *path, uint64_t offset, void *buffer, size_t bytes,
		     struct tpck_error *err)
{
	bool aligned = ((uintptr_t)buffer | offset) % TPCK_WRITER_ALIGN == 0;
	size_t padded = (bytes + TPCK_WRITER_ALIGN - 1) / TPCK_WRITER_ALIGN * TPCK_WRITER_ALIGN;
	char aside[TPCK_PATH_MAX];
	const char *rest = rest_of(opened);
	int fd = open_container(opened, rest, aligned), rc;

	/* A checkpoint that was set aside still serves others with its good chunks. */
	if (fd < 0 && errno == ENOENT &&
	    snprintf(aside, sizeof aside, "%s/%s/%s", tier->root, TPCK_QUARANTINE, path) < (int)sizeof aside) {
		rest = aside + opened->below.skip;
		fd = open_container(opened, rest, aligned);
	}
	if (fd < 0)
		return tpck_error_set(err, errno, "opening %s", opened->path);
	rc = read_whole(fd, buffer, aligned ? padded : bytes, bytes, offset);
	if (rc == -EINVAL && aligned) {
		close(fd);
		fd = open_container(opened, rest, false);
		rc = fd < 0 ? -errno : read_whole(fd, buffer, bytes, bytes, offset);
	}
	if (fd >= 0)
		close(fd);
	if (rc == -ENODATA)
		return tpck_error_set(err, EBADMSG, "%s ends before byte %llu", opened->path,
				      (unsigned long long)(offset + bytes));
	return rc ? tpck_error_set(err, -rc, "reading %s", opened->path) : 0;
}

static int durable_get(struct tpck_tier *tier, const char *path, uint64_t offset, void *buffer, size_t bytes,
		       struct tpck_error *err)
{
	struct opened opened;
	int rc = open_readable(tier, path, &opened, err);

	if (rc)
		return rc;
	rc = get_below(tier, &opened, path, offset, buffer, bytes, err);
	close_root(&opened);
	return rc;
}

static int durable_get_text(struct tpck_tier *tier, const char *path, size_t limit, char **text, size_t *size,
			    struct tpck_error *err)
{
	struct opened opened;
	int rc = open_readable(tier, path, &opened, err);

	if (rc)
		return rc;
	rc = tpck_file_read_below(opened.below, opened.path, limit, text, size, err);
	close_root(&opened);
	return rc;
}

static int durable_size(struct tpck_tier *tier, const char *path, uint64_t *bytes, struct tpck_error *err)
{
	struct opened opened;
	struct stat found;
	int rc = open_readable(tier, path, &opened, err);

	if (rc)
		return rc;
	if (fstatat(opened.below.at, rest_of(&opened), &found, 0))
		rc = tpck_error_set(err, errno, "looking at %s", opened.path);
	else
		*bytes = found.st_blocks ? (uint64_t)found.st_blocks * 512 : (uint64_t)found.st_size;
	close_root(&opened);
	return rc;
}

static int durable_list(struct tpck_tier *tier, const char *path,
			int (*visit)(void *context, const char *name), void *context, struct tpck_error *err)
{
	struct opened opened;
	struct dirent *entry;
	DIR *folder;
	int fd, rc = open_readable(tier, path, &opened, err);

	if (rc)
		return rc == -ENOENT ? 0 : rc;
	fd = openat(opened.below.at, rest_of(&opened), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	rc = fd < 0 && errno != ENOENT ? tpck_error_set(err, errno, "listing %s", opened.path) : 0;
	folder = fd < 0 ? NULL : fdopendir(fd);
	while (folder && !rc && (entry = readdir(folder)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			rc = visit(context, entry->d_name);
	if (folder)
		closedir(folder);
	else if (fd >= 0)
		close(fd);
	close_root(&opened);
	return rc;
}

static int durable_remove(struct tpck_tier *tier, const char *path, struct tpck_error *err)
{
	struct opened opened;
	int rc = open_own(tier, false, path, &opened, err);

	if (rc)
		return rc == -ENOENT ? 0 : rc;
	if (path[0] && (unlinkat(opened.below.at, rest_of(&opened), 0) == 0 || errno == ENOENT))
		rc = 0;
	else if (!path[0])
		rc = tpck_folder_remove(tier->root);
	else
		rc = errno == EISDIR || errno == EPERM ? tpck_folder_remove_below(opened.below, opened.path) : -errno;
	close_root(&opened);
	return rc && rc != -ENOENT ? tpck_error_set(err, -rc, "removing %s", opened.path) : 0;
}

static int durable_set_aside(struct tpck_tier *tier, const char *checkpoint, const char *reason,
			     struct tpck_error *err)
{
	char to[TPCK_PATH_MAX], folder[TPCK_PATH_MAX], mark[TPCK_PATH_MAX + 8];
	struct opened from;
	size_t skip;
	int rc = open_there(tier, checkpoint, &from, err);

	if (rc)
		return rc;
	skip = from.below.skip;
	rc = full_path(tier, TPCK_QUARANTINE, folder, sizeof folder, err);
	if (!rc)
		rc = tpck_path_join(to, sizeof to, folder, checkpoint);
	if (!rc)
		rc = tpck_folder_make_below(from.below, folder, err);
	for (int i = 1; !rc && renameat(from.below.at, rest_of(&from), from.below.at, to + skip); i++) {
		if ((errno != ENOTEMPTY && errno != EEXIST) || i == 100)
			rc = tpck_error_set(err, errno, "setting aside %s", from.path);
		else
			snprintf(to, sizeof to, "%.900s/%.100s.%d", folder, checkpoint, i);
	}
	if (!rc) {
		snprintf(mark, sizeof mark, "%s/reason", to);
		rc = tpck_file_write_below(from.below, mark, reason, strlen(reason), TPCK_FILE_DURABLE, err);
	}
	if (!rc)
		rc = tpck_folder_sync_below(from.below, folder, err);
	close_root(&from);
	return rc;
}

static int durable_folder(struct tpck_tier *tier, struct tpck_error *err)
{
	struct opened opened;
	int rc = open_own(tier, true, "", &opened, err);

	if (!rc && faccessat(opened.below.at, ".", R_OK | W_OK | X_OK, AT_EACCESS))
		rc = tpck_error_set(err, errno, "writing to store %s", tier->root);
	if (rc)
		close_root(&opened);
	return rc ? rc : opened.below.at;
}

static int durable_path(struct tpck_tier *tier, const char *name, char *path, size_t size, struct tpck_error *err)
{
	return tpck_path_join(path, size, tier->root, name) ? tpck_error_set(err, ENAMETOOLONG, "using %s/%s", tier->root, name) : 0;
}

static int durable_check(struct tpck_tier *tier, struct tpck_error *err)
{
	int folder = durable_folder(tier, err);

	if (folder >= 0)
		close(folder);
	return folder < 0 ? folder : 0;
}

static int take_lock(struct tpck_tier *tier, int how, bool sure, double wait_sec, struct tpck_error *err)
{
	uint64_t until = tpck_clock_monotonic_ns() + (uint64_t)(wait_sec * 1e9);
	struct opened opened;
	int fd, rc = open_there(tier, "lock", &opened, err);

	if (rc)
		return rc;
	fd = openat(opened.below.at, rest_of(&opened), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	rc = fd < 0 ? tpck_error_set(err, errno, "opening %s", opened.path) : 0;
	close_root(&opened);
	if (rc)
		return rc;
	while (flock(fd, how | LOCK_NB)) {
		/* A file system without locks has none to wait for. */
		if (!sure && (errno == ENOLCK || errno == ENOTSUP || errno == ENOSYS))
			return fd;
		if (tpck_clock_monotonic_ns() >= until || errno != EWOULDBLOCK) {
			rc = tpck_error_set(err, errno == EWOULDBLOCK ? EBUSY : errno, "locking %s", opened.path);
			close(fd);
			return rc;
		}
		usleep(20000);
	}
	return fd;
}

static bool durable_was_held(struct tpck_tier *tier)
{
	struct tpck_error err = {0};
	struct opened opened;
	int rc = open_own(tier, false, "lock", &opened, &err);
	bool was = access(tier->root, W_OK) == 0 && (rc ? rc != -ENOENT : !faccessat(opened.below.at, rest_of(&opened), F_OK, 0));

	close_root(&opened);
	return was;
}

static int durable_hold(struct tpck_tier *tier, enum tpck_hold how, double wait_sec, struct tpck_error *err)
{
	return take_lock(tier, how == TPCK_HOLD_ADDS ? LOCK_SH : LOCK_EX, how == TPCK_HOLD_ALONE, wait_sec, err);
}

static void durable_release(struct tpck_tier *tier, int hold)
{
	(void)tier;
	close(hold);
}

/* Below the folder that was looked at: who may rename it does not lead elsewhere. */
static int durable_append(struct tpck_tier *tier, const char *path, const char *lines, size_t size, uint64_t most, struct tpck_error *err)
{
	char full[TPCK_PATH_MAX];
	int rc = full_path(tier, path, full, sizeof full, err), root;

	if (rc)
		return rc;
	root = durable_folder(tier, err);
	if (root < 0)
		return root;
	rc = tpck_history_append((struct tpck_below){root, strlen(tier->root) + 1}, full, lines, size, most, err);
	close(root);
	return rc;
}

static void durable_close(struct tpck_tier *tier)
{
	struct durable_tier *durable = (struct durable_tier *)tier;

	tpck_writer_close(durable->writer);
	pthread_mutex_destroy(&durable->lock);
	free(durable);
}

static const struct tpck_tier_operations operations = {
	.kind = "durable",
	.put = durable_put,
	.mark = durable_mark,
	.commit_if_absent = durable_commit,
	.get = durable_get,
	.get_text = durable_get_text,
	.size = durable_size,
	.list = durable_list,
	.remove = durable_remove,
	.set_aside = durable_set_aside,
	.append = durable_append,
	.check = durable_check,
	.hold = durable_hold,
	.release = durable_release,
	.was_held = durable_was_held,
	.folder = durable_folder,
	.path = durable_path,
	.close = durable_close,
};

int tpck_durable_tier_open(struct tpck_tier **tier, const char *store, const char *job,
			   enum tpck_writer_engine engine, struct tpck_error *err)
{
	struct durable_tier *durable = calloc(1, sizeof *durable);

	if (!durable)
		return tpck_error_set(err, ENOMEM, "opening store %s", store);
	durable->tier.operations = &operations;
	durable->engine = engine;
	pthread_mutex_init(&durable->lock, NULL);
	if (tpck_path_join(durable->tier.root, sizeof durable->tier.root - 300, store, job)) {
		durable_close(&durable->tier);
		return tpck_error_set(err, ENAMETOOLONG, "opening store %s", store);
	}
	*tier = &durable->tier;
	return 0;
}
