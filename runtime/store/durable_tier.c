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
#include "runtime/base/log.h"
#include "runtime/store/container.h"
#include "runtime/store/file.h"
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

/* Somebody else's folder is neither written to nor, by an agent, believed. One that is not there yet will
 * be ours. */
static int check_owner(struct tpck_tier *tier, struct tpck_error *err)
{
	struct stat status;

	if (stat(tier->root, &status))
		return errno == ENOENT || errno == ENOTDIR ? 0 : tpck_error_set(err, errno, "opening store %s", tier->root);
	if (status.st_uid != geteuid())
		return tpck_error_set(err, EPERM, "store %s belongs to user %u, not to %u", tier->root,
				      (unsigned)status.st_uid, (unsigned)geteuid());
	return 0;
}

/* The path of something that is about to be written or removed. */
static int own_path(struct tpck_tier *tier, const char *path, char *full, size_t size, struct tpck_error *err)
{
	int rc = check_owner(tier, err);

	return rc ? rc : full_path(tier, path, full, size, err);
}

/* The path of something that is about to be read. */
static int readable_path(struct tpck_tier *tier, const char *path, char *full, size_t size, struct tpck_error *err)
{
	return tier->own_only ? own_path(tier, path, full, size, err) : full_path(tier, path, full, size, err);
}

static int make_parent(const char *full, struct tpck_error *err)
{
	char parent[TPCK_PATH_MAX];

	snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(full, '/') - full), full);
	return tpck_folder_make(parent, err);
}

/* Opened with O_DIRECT where the file system knows it. */
static int open_direct(const char *path, int flags)
{
	int fd = open(path, flags | O_DIRECT, 0600);

	return fd < 0 && errno == EINVAL ? open(path, flags, 0600) : fd;
}

static int durable_put(struct tpck_tier *tier, const char *path, const struct tpck_source *source,
		       uint64_t *bytes, struct tpck_error *err)
{
	struct durable_tier *durable = (struct durable_tier *)tier;
	char full[TPCK_PATH_MAX], parent[TPCK_PATH_MAX];
	uint64_t end = 0;
	int fd, rc;

	rc = own_path(tier, path, full, sizeof full, err);
	if (!rc)
		rc = make_parent(full, err);
	if (rc)
		return rc;
	fd = open_direct(full, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC);
	if (fd < 0)
		return tpck_error_set(err, errno, "making container %s", full);
	pthread_mutex_lock(&durable->lock);
	rc = durable->writer ? 0 : tpck_writer_open(&durable->writer, durable->engine, err);
	if (!rc)
		rc = tpck_writer_write(durable->writer, fd, full, 0, source, &end, err);
	pthread_mutex_unlock(&durable->lock);
	if (!rc && fsync(fd))
		rc = tpck_error_set(err, errno, "syncing container %s", full);
	if (close(fd) && !rc)
		rc = tpck_error_set(err, errno, "closing container %s", full);
	if (!rc) {
		snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(full, '/') - full), full);
		rc = tpck_folder_sync(parent, err);
	}
	if (!rc)
		*bytes = end;
	return rc;
}

static int durable_mark(struct tpck_tier *tier, const char *path, const char *text, struct tpck_error *err)
{
	char full[TPCK_PATH_MAX];
	int rc = own_path(tier, path, full, sizeof full, err);

	if (!rc)
		rc = make_parent(full, err);
	return rc ? rc : tpck_file_write(full, text, strlen(text), TPCK_FILE_DURABLE, err);
}

static int durable_commit(struct tpck_tier *tier, const char *path, const char *text, size_t size,
			  struct tpck_error *err)
{
	char full[TPCK_PATH_MAX];
	int rc = own_path(tier, path, full, sizeof full, err);

	return rc ? rc : tpck_file_write(full, text, size, TPCK_FILE_DURABLE | TPCK_FILE_ABSENT, err);
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

static int durable_get(struct tpck_tier *tier, const char *path, uint64_t offset, void *buffer, size_t bytes,
		       struct tpck_error *err)
{
	bool aligned = ((uintptr_t)buffer | offset) % TPCK_WRITER_ALIGN == 0;
	size_t padded = (bytes + TPCK_WRITER_ALIGN - 1) / TPCK_WRITER_ALIGN * TPCK_WRITER_ALIGN;
	char full[TPCK_PATH_MAX];
	int fd, rc = readable_path(tier, path, full, sizeof full, err);

	if (rc)
		return rc;
	fd = aligned ? open_direct(full, O_RDONLY | O_CLOEXEC) : open(full, O_RDONLY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT) {
		/* A checkpoint that was set aside still serves others with its good chunks. */
		if (snprintf(full, sizeof full, "%s/%s/%s", tier->root, TPCK_QUARANTINE, path) < (int)sizeof full)
			fd = aligned ? open_direct(full, O_RDONLY | O_CLOEXEC) : open(full, O_RDONLY | O_CLOEXEC);
		if (fd < 0) {
			rc = errno;
			full_path(tier, path, full, sizeof full, NULL);
			errno = rc;
		}
	}
	if (fd < 0)
		return tpck_error_set(err, errno, "opening %s", full);
	rc = read_whole(fd, buffer, aligned ? padded : bytes, bytes, offset);
	if (rc == -EINVAL && aligned) {
		close(fd);
		fd = open(full, O_RDONLY | O_CLOEXEC);
		rc = fd < 0 ? -errno : read_whole(fd, buffer, bytes, bytes, offset);
	}
	if (fd >= 0)
		close(fd);
	if (rc == -ENODATA)
		return tpck_error_set(err, EBADMSG, "%s ends before byte %llu", full,
				      (unsigned long long)(offset + bytes));
	return rc ? tpck_error_set(err, -rc, "reading %s", full) : 0;
}

static int durable_get_text(struct tpck_tier *tier, const char *path, size_t limit, char **text, size_t *size,
			    struct tpck_error *err)
{
	char full[TPCK_PATH_MAX];
	int rc = readable_path(tier, path, full, sizeof full, err);

	return rc ? rc : tpck_file_read(full, limit, text, size, err);
}

static int durable_list(struct tpck_tier *tier, const char *path,
			int (*visit)(void *context, const char *name), void *context, struct tpck_error *err)
{
	char full[TPCK_PATH_MAX];
	struct dirent *entry;
	DIR *folder;
	int rc = readable_path(tier, path, full, sizeof full, err);

	if (rc)
		return rc;
	folder = opendir(full);
	if (!folder)
		return errno == ENOENT ? 0 : tpck_error_set(err, errno, "listing %s", full);
	while (!rc && (entry = readdir(folder)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			rc = visit(context, entry->d_name);
	closedir(folder);
	return rc;
}

static int durable_remove(struct tpck_tier *tier, const char *path, struct tpck_error *err)
{
	char full[TPCK_PATH_MAX];
	int rc = own_path(tier, path, full, sizeof full, err);

	if (rc)
		return rc;
	if (unlink(full) == 0 || errno == ENOENT)
		return 0;
	rc = errno == EISDIR || errno == EPERM ? tpck_folder_remove(full) : -errno;
	return rc && rc != -ENOENT ? tpck_error_set(err, -rc, "removing %s", full) : 0;
}

static int durable_set_aside(struct tpck_tier *tier, const char *checkpoint, const char *reason,
			     struct tpck_error *err)
{
	char from[TPCK_PATH_MAX], to[TPCK_PATH_MAX], folder[TPCK_PATH_MAX], mark[TPCK_PATH_MAX + 8];
	int rc = own_path(tier, checkpoint, from, sizeof from, err);

	if (!rc)
		rc = full_path(tier, TPCK_QUARANTINE, folder, sizeof folder, err);
	if (!rc)
		rc = tpck_path_join(to, sizeof to, folder, checkpoint);
	if (!rc)
		rc = tpck_folder_make(folder, err);
	for (int i = 1; !rc && rename(from, to); i++) {
		if ((errno != ENOTEMPTY && errno != EEXIST) || i == 100)
			return tpck_error_set(err, errno, "setting aside %s", from);
		snprintf(to, sizeof to, "%.900s/%.100s.%d", folder, checkpoint, i);
	}
	if (rc)
		return rc;
	snprintf(mark, sizeof mark, "%s/reason", to);
	rc = tpck_file_write(mark, reason, strlen(reason), TPCK_FILE_DURABLE, err);
	return rc ? rc : tpck_folder_sync(folder, err);
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
	.list = durable_list,
	.remove = durable_remove,
	.set_aside = durable_set_aside,
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

void tpck_tier_close(struct tpck_tier *tier)
{
	if (tier)
		tier->operations->close(tier);
}

int tpck_durable_tier_check(struct tpck_tier *tier, struct tpck_error *err)
{
	int rc = check_owner(tier, err);

	if (!rc)
		rc = tpck_folder_make(tier->root, err);
	/* Again: somebody else may have made it meanwhile. */
	if (!rc)
		rc = check_owner(tier, err);
	if (!rc && access(tier->root, R_OK | W_OK | X_OK))
		rc = tpck_error_set(err, errno, "writing to store %s", tier->root);
	return rc;
}

static int take_lock(struct tpck_tier *tier, int how, bool sure, double wait_sec, struct tpck_error *err)
{
	uint64_t until = tpck_clock_monotonic_ns() + (uint64_t)(wait_sec * 1e9);
	char full[TPCK_PATH_MAX];
	int fd, rc = own_path(tier, "lock", full, sizeof full, err);

	if (rc)
		return rc;
	fd = open(full, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return tpck_error_set(err, errno, "opening %s", full);
	while (flock(fd, how | LOCK_NB)) {
		/* A file system without locks has none to wait for. */
		if (!sure && (errno == ENOLCK || errno == ENOTSUP || errno == ENOSYS))
			return fd;
		if (tpck_clock_monotonic_ns() >= until || errno != EWOULDBLOCK) {
			rc = tpck_error_set(err, errno == EWOULDBLOCK ? EBUSY : errno, "locking %s", full);
			close(fd);
			return rc;
		}
		usleep(20000);
	}
	return fd;
}

bool tpck_durable_tier_was_locked(struct tpck_tier *tier)
{
	struct tpck_error err = {0};
	char full[TPCK_PATH_MAX];

	return own_path(tier, "lock", full, sizeof full, &err) || !access(full, F_OK);
}

int tpck_durable_tier_lock(struct tpck_tier *tier, double wait_sec, struct tpck_error *err)
{
	return take_lock(tier, LOCK_EX, false, wait_sec, err);
}

int tpck_durable_tier_lock_alone(struct tpck_tier *tier, double wait_sec, struct tpck_error *err)
{
	return take_lock(tier, LOCK_EX, true, wait_sec, err);
}

int tpck_durable_tier_share(struct tpck_tier *tier, double wait_sec, struct tpck_error *err)
{
	return take_lock(tier, LOCK_SH, false, wait_sec, err);
}
