/* SPDX-License-Identifier: Apache-2.0 */
/* needs: disk */
/* The writer, each way of writing: the same bytes, padded, and failures that are reported. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/store/file.h"
#include "runtime/store/writer.h"
#include "runtime/wire/segment.h"
#include "tests/unit/store_tap.h"

static struct tpck_error err;

struct bytes {
	uint32_t sizes[64];
	unsigned count, at;
	int fail_at;
};

static int next(void *context, uint8_t *buffer, uint32_t *size, struct tpck_error *e)
{
	struct bytes *bytes = context;

	if (bytes->fail_at >= 0 && (int)bytes->at == bytes->fail_at)
		return tpck_error_set(e, EBADMSG, "source gave up");
	*size = bytes->at < bytes->count ? bytes->sizes[bytes->at] : 0;
	memset(buffer, 0x11 + (int)bytes->at, *size);
	bytes->at++;
	return 0;
}

static struct bytes plan(void)
{
	struct bytes bytes = {.count = 24, .fail_at = -1};

	for (unsigned i = 0; i < bytes.count; i++)
		bytes.sizes[i] = i % 5 == 0 ? 1 + i : i % 3 == 0 ? TPCK_CHUNK_BYTES : 70000 * i;
	return bytes;
}

static bool content_is_right(const char *path, const struct bytes *bytes, uint64_t end)
{
	char *text;
	size_t size;
	uint64_t at = 0;
	bool good = true;

	if (tpck_file_read(path, 1 << 30, &text, &size, &err))
		return false;
	for (unsigned i = 0; good && i < bytes->count; i++) {
		uint64_t padded = (bytes->sizes[i] + 4095ull) / 4096 * 4096;

		for (uint64_t b = 0; good && b < padded; b++)
			good = at + b < size && text[at + b] == (b < bytes->sizes[i] ? (char)(0x11 + (int)i) : 0);
		at += padded;
	}
	free(text);
	return good && at == size && size == end;
}

static void round_trip(const char *folder, enum tpck_writer_engine engine, int flags, const char *name)
{
	struct bytes bytes = plan();
	struct tpck_source source = {next, &bytes};
	struct tpck_writer *writer = NULL;
	char path[256], what[160];
	uint64_t end = 0;
	int fd, rc = tpck_writer_open(&writer, engine, &err);

	snprintf(path, sizeof path, "%s/%s", folder, name);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | flags, 0600);
	if (fd < 0 && flags)
		fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (!rc)
		rc = tpck_writer_write(writer, fd, path, 0, &source, &end, &err);
	close(fd);
	snprintf(what, sizeof what, "%s: bytes arrive (engine %d)", name, (int)tpck_writer_engine(writer));
	ok(!rc && content_is_right(path, &bytes, end), what);

	bytes = plan();
	bytes.fail_at = 7;
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	rc = tpck_writer_write(writer, fd, path, 0, &source, &end, &err);
	close(fd);
	snprintf(what, sizeof what, "%s: a source that fails is passed on", name);
	ok(rc == -EBADMSG && strstr(err.text, "source gave up"), what);

	fd = open("/dev/full", O_RDWR);
	bytes = plan();
	rc = tpck_writer_write(writer, fd, "/dev/full", 0, &source, &end, &err);
	close(fd);
	snprintf(what, sizeof what, "%s: a full disk is told", name);
	ok(rc == -ENOSPC && strstr(err.text, "/dev/full"), what);

	bytes = plan();
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	rc = tpck_writer_write(writer, fd, path, 0, &source, &end, &err);
	close(fd);
	snprintf(what, sizeof what, "%s: and it works again afterwards", name);
	ok(!rc && content_is_right(path, &bytes, end), what);
	tpck_writer_close(writer);
}

int main(void)
{
	char *folder = tap_folder(getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");

	round_trip(folder, TPCK_WRITER_AUTO, O_DIRECT, "automatic, direct");
	round_trip(folder, TPCK_WRITER_URING, O_DIRECT, "unregistered, direct");
	round_trip(folder, TPCK_WRITER_THREADS, O_DIRECT, "threads, direct");
	round_trip(folder, TPCK_WRITER_AUTO, 0, "automatic, cached");
	round_trip(folder, TPCK_WRITER_THREADS, 0, "threads, cached");
	tpck_folder_remove(folder);
	return tap_done();
}
