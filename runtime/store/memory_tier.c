/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions of the memory tier: folders with a control page and an identity. */
#include "config.h"

#include "runtime/store/memory_tier.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/door.h"
#include "runtime/base/log.h"
#include "runtime/store/file.h"
#include "runtime/store/packing.h"

static int map_control(struct tpck_session *session, bool create, bool writable, struct tpck_error *err)
{
	char path[TPCK_PATH_MAX];
	struct stat status;
	void *page;
	int fd;

	snprintf(path, sizeof path, "%s/control", session->path);
	fd = open(path, (writable ? O_RDWR : O_RDONLY) | (create ? O_CREAT | O_EXCL : 0) | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (fd < 0)
		return tpck_error_set(err, errno, "opening control page %s", path);
	/* fallocate, not ftruncate: on a full tmpfs the first store into a hole is SIGBUS. */
	if (create && (errno = posix_fallocate(fd, 0, sizeof(struct tpck_control)))) {
		tpck_error_set(err, errno, "making control page %s", path);
		close(fd);
		return -errno;
	}
	if (fstat(fd, &status) || (size_t)status.st_size < sizeof(struct tpck_control)) {
		close(fd);
		return tpck_error_set(err, EBADMSG, "control page %s is cut short", path);
	}
	page = mmap(NULL, sizeof(struct tpck_control), PROT_READ | (writable ? PROT_WRITE : 0),
		    MAP_SHARED, fd, 0);
	close(fd);
	if (page == MAP_FAILED)
		return tpck_error_set(err, errno, "mapping control page %s", path);
	session->control = page;
	return 0;
}

static struct tpck_session *session_new(const char *job_folder, const char *name, struct tpck_error *err)
{
	struct tpck_session *session = calloc(1, sizeof *session);

	if (!session) {
		tpck_error_set(err, ENOMEM, "opening session %s", name);
		return NULL;
	}
	if (tpck_session_name_parse(name, &session->name) ||
	    tpck_path_join(session->path, sizeof session->path, job_folder, name)) {
		tpck_error_set(err, ENAMETOOLONG, "opening session %s/%s", job_folder, name);
		free(session);
		return NULL;
	}
	return session;
}

int tpck_session_create(struct tpck_session **out, const char *job_folder,
			const struct tpck_session_name *name, const char *identity,
			struct tpck_error *err)
{
	struct tpck_session *session;
	char text[64], path[TPCK_PATH_MAX];
	int rc;

	tpck_session_name_format(name, text, sizeof text);
	session = session_new(job_folder, text, err);
	if (!session)
		return -err->code;
	session->name = *name;
	if (mkdir(session->path, 0700)) {
		rc = tpck_error_set(err, errno, "making session folder %s", session->path);
		tpck_session_close(session);
		return rc;
	}
	snprintf(path, sizeof path, "%s/identity", session->path);
	session->identity = strdup(identity);
	rc = session->identity ? tpck_file_write(path, identity, strlen(identity), 0, err)
			       : tpck_error_set(err, ENOMEM, "opening session %s", text);
	if (!rc)
		rc = map_control(session, true, true, err);
	if (rc) {
		tpck_session_remove(session->path);
		tpck_session_close(session);
		return rc;
	}
	session->control->generation = name->generation;
	session->control->version = TPCK_WIRE_VERSION;
	session->control->magic = TPCK_CONTROL_MAGIC;
	*out = session;
	return 0;
}

int tpck_session_open(struct tpck_session **out, const char *job_folder, const char *name,
		      bool writable, struct tpck_error *err)
{
	struct tpck_session *session = session_new(job_folder, name, err);
	char path[TPCK_PATH_MAX];
	int rc;

	if (!session)
		return -EINVAL;
	rc = map_control(session, false, writable, err);
	if (!rc && session->control->magic != TPCK_CONTROL_MAGIC)
		rc = tpck_error_set(err, EBADMSG, "control page of %s is none", session->path);
	if (!rc && session->control->version != TPCK_WIRE_VERSION)
		rc = tpck_error_set(err, EPROTO, "session %s has shared-memory version %u, this is %d",
				    session->path, session->control->version, TPCK_WIRE_VERSION);
	if (!rc) {
		snprintf(path, sizeof path, "%s/identity", session->path);
		rc = tpck_file_read(path, 4 << 20, &session->identity, NULL, err);
	}
	if (rc) {
		tpck_session_close(session);
		return rc;
	}
	*out = session;
	return 0;
}

void tpck_session_close(struct tpck_session *session)
{
	if (!session)
		return;
	if (session->control)
		munmap(session->control, sizeof *session->control);
	free(session->identity);
	free(session);
}

int tpck_session_remove(const char *path)
{
	return tpck_folder_remove(path);
}

void tpck_log_path(const char *session_path, uint64_t sequence, char *path, size_t size)
{
	snprintf(path, size, "%s/log.%06u", session_path, (unsigned)sequence);
}

static int segment_check(const char *session_path, uint64_t sequence, const struct tpck_cut *cut, struct tpck_error *err)
{
	bool last = sequence == cut->sequence;
	struct tpck_log_header header;
	char path[TPCK_PATH_MAX];
	struct stat status = {0};
	uint64_t used;

	if (!tpck_segment_find(session_path, sequence, path, sizeof path, &header) || stat(path, &status))
		return tpck_error_set(err, ENOENT, "opening log segment %s", path);
	if (header.magic != TPCK_LOG_MAGIC || header.sequence != sequence)
		return tpck_error_set(err, EBADMSG, "log segment %s has no valid header", path);
	if (header.version != TPCK_WIRE_VERSION)
		return tpck_error_set(err, EPROTO, "log segment %s has version %u, this is %d", path, header.version, TPCK_WIRE_VERSION);
	used = atomic_load(&header.used);
	if (used < sizeof header || used > (uint64_t)status.st_size || (!last && !header.sealed) ||
	    (last && (cut->offset > used || cut->offset < sizeof header || header.sealed == TPCK_LOG_PACKED)))
		return tpck_error_set(err, EBADMSG, "log segment %s is not whole up to the snapshot", path);
	return 0;
}

int tpck_log_check(const char *session_path, const struct tpck_cut *cut, struct tpck_error *err)
{
	int rc = 0;

	for (uint64_t sequence = 0; !rc && sequence <= cut->sequence; sequence++)
		rc = segment_check(session_path, sequence, cut, err);
	return rc;
}

uint64_t tpck_folder_memory(const char *path)
{
	struct dirent *entry;
	uint64_t bytes = 0;
	DIR *folder = opendir(path);

	if (!folder)
		return 0;
	while ((entry = readdir(folder))) {
		struct stat status;

		if (fstatat(dirfd(folder), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) || !S_ISREG(status.st_mode))
			continue;
		bytes += (uint64_t)status.st_blocks * 512 / status.st_nlink;
	}
	closedir(folder);
	return bytes;
}

uint64_t tpck_stash_sum(const char *folder)
{
	DIR *list = opendir(folder);
	struct dirent *entry;
	struct stat found;
	uint64_t bytes = 0;

	while (list && (entry = readdir(list)))
		if (tpck_stash_is_name(entry->d_name) && !fstatat(dirfd(list), entry->d_name, &found, 0))
			bytes += found.st_blocks ? (uint64_t)found.st_blocks * 512 : (uint64_t)found.st_size;
	if (list)
		closedir(list);
	return bytes;
}
