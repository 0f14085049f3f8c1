// SPDX-License-Identifier: Apache-2.0
/* Records of files that a node owes, whole and broken; and what may be put over what. */
#include "config.h"

#include <fcntl.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "runtime/peer/owed.h"
#include "tests/unit/store_tap.h"

static const uint8_t digests[2][16] = {{1}, {2}};

static struct tpck_owed sample(uint64_t order, uint64_t bytes, int64_t seconds)
{
	return (struct tpck_owed){
		.head = {.magic = TPCK_OWED_MAGIC, .table = 7, .mode = 0640, .group = 5, .serial = 7ull << 32 | order, .order = order, .version = 9,
			 .bytes = bytes, .chunks = (uint32_t)((bytes + TPCK_OWED_CHUNK - 1) / TPCK_OWED_CHUNK), .modified_sec = seconds,
			 .folder_inode = 33, .there = {.kind = TPCK_THERE_FILE, .inode = 100, .bytes = 10, .seconds = 1}},
		.folder = "/a/folder", .name = "model.pt", .part_folder = "", .part = "", .attributes = "", .digest = digests,
	};
}

static struct stat file(uint64_t inode, uint64_t bytes, int64_t seconds)
{
	return (struct stat){.st_ino = inode, .st_size = (off_t)bytes, .st_mtim = {.tv_sec = seconds}};
}

static void test_records(void)
{
	static const char *const leaving[] = {"../../etc/passwd", "/etc/passwd", "a/b", "..", ".", ""};
	struct tpck_error err = {0};
	struct tpck_owed owed = sample(3, TPCK_OWED_CHUNK + 1, 50), back;
	char path[] = "/tmp/tpck-owed.XXXXXX";
	char *record, *copy;
	bool same, refused = true;
	size_t size;
	int fd = mkstemp(path);

	unlink(path);
	(void)!fsetxattr(fd, "user.note", "value", 5, 0);
	owed.attributes = tpck_owed_attributes(fd, &owed.head.attributes);
	if (!owed.attributes)
		owed.attributes = "";
	owed.part_folder = "/a/folder";
	owed.part = ".tpck-1.part";
	record = tpck_owed_write(&owed, &size);
	same = !tpck_owed_read(record, size, &back) && strcmp(back.folder, owed.folder) == 0 && strcmp(back.name, owed.name) == 0 &&
	       strcmp(back.part_folder, owed.part_folder) == 0 && strcmp(back.part, owed.part) == 0 && back.head.mode == 0640 &&
	       back.head.chunks == 2 && memcmp(back.digest, digests, sizeof digests) == 0 && back.head.there.inode == 100 &&
	       back.head.attributes == owed.head.attributes && memcmp(back.attributes, owed.attributes, back.head.attributes) == 0;
	ok(same, "a record is read as it was written");
	copy = malloc(size + 1);
	for (size_t cut = 0; cut < size; cut++) {
		memcpy(copy, record, size);
		refused = refused && tpck_owed_read(copy, cut, &back);
	}
	memcpy(copy, record, size);
	copy[size] = 0;
	ok(refused && tpck_owed_read(copy, size + 1, &back), "one that is cut, or longer, is refused");
	/* Whatever a byte is, what is read stays within the record: a sanitizer sees it. */
	for (size_t at = 0; at < size; at++)
		for (int bit = 0; bit < 8; bit++) {
			memcpy(copy, record, size);
			copy[at] ^= (char)(1 << bit);
			if (!tpck_owed_read(copy, size, &back))
				tpck_owed_give_attributes(&back, fd);
		}
	ok(true, "any bit may be another one");
	for (size_t i = 0; i < sizeof leaving / sizeof *leaving; i++) {
		free(record);
		owed.name = leaving[i];
		owed.part = ".tpck-1.part";
		record = tpck_owed_write(&owed, &size);
		refused = refused && tpck_owed_read(record, size, &back);
		/* None at all is allowed for a part. */
		if (!*leaving[i])
			continue;
		free(record);
		owed.name = "model.pt";
		owed.part = leaving[i];
		record = tpck_owed_write(&owed, &size);
		refused = refused && tpck_owed_read(record, size, &back);
	}
	ok(refused, "a name that leaves its folder is refused, and so is a part's");
	owed.name = "..model.pt";
	owed.part = "";
	free(record);
	record = tpck_owed_write(&owed, &size);
	ok(!tpck_owed_read(record, size, &back), "one that only begins so is not");
	owed.folder = "a/folder";
	free(record);
	record = tpck_owed_write(&owed, &size);
	ok(tpck_owed_read(record, size, &back), "a folder without a root is refused");
	free(record);
	free(copy);
	close(fd);
}

static enum tpck_owed_verdict judge(const struct tpck_owed *list, size_t count, size_t which, const struct stat *found)
{
	const struct tpck_view_there lawful = {.kind = TPCK_THERE_FILE, .inode = 200, .bytes = 20, .seconds = 2};

	return tpck_owed_judge(list, count, which, &lawful, 1, found);
}

static void test_verdicts(void)
{
	struct tpck_owed list[] = {sample(1, 1000, 60), sample(2, 2000, 70), sample(3, 3000, 80)};
	struct stat seen = file(100, 10, 1), lawful = file(200, 20, 2), older = file(300, 1000, 60), own = file(301, 2000, 70),
		    newer = file(302, 3000, 80), other = file(100, 11, 1), later = file(303, 2000, 71);
	struct tpck_error err = {0};

	ok(judge(list, 3, 1, NULL) == TPCK_OWED_PUT, "where there is nothing it is put");
	ok(judge(list, 3, 1, &seen) == TPCK_OWED_PUT, "and over what the program saw there");
	ok(judge(list, 3, 1, &lawful) == TPCK_OWED_PUT, "and over what the owner has put there since");
	ok(judge(list, 3, 1, &older) == TPCK_OWED_PUT, "and over the save before it");
	ok(judge(list, 3, 1, &own) == TPCK_OWED_THERE, "what is there is not put again");
	ok(judge(list, 3, 1, &newer) == TPCK_OWED_THERE, "nor over the save behind it");
	ok(judge(list, 3, 1, &other) == TPCK_OWED_LEAVE && judge(list, 3, 1, &later) == TPCK_OWED_LEAVE,
	   "what is neither is left");
	list[1].head.removed = 1;
	list[1].head.bytes = list[1].head.chunks = 0;
	ok(judge(list, 3, 1, &seen) == TPCK_OWED_PUT && judge(list, 3, 1, &older) == TPCK_OWED_PUT, "what the program removed goes");
	ok(judge(list, 3, 1, NULL) == TPCK_OWED_THERE && judge(list, 3, 1, &newer) == TPCK_OWED_THERE, "unless it is gone, or saved again");
	ok(judge(list, 3, 1, &other) == TPCK_OWED_LEAVE, "or is something else");
	list[0].name = "another.pt";
	ok(judge(list, 3, 1, &older) == TPCK_OWED_LEAVE, "other names do not count");
}

static void test_folders(void)
{
	struct tpck_error err = {0};
	char *list = strdup(""), *more, folder[32];
	const char *at = NULL;
	size_t count = 0;

	for (int i = 0; i < TPCK_OWED_FOLDERS + 3; i++) {
		snprintf(folder, sizeof folder, i == 1 ? "/out/step%d\nb" : "/out/step%d", i);
		more = tpck_owed_folders_with(list, folder);
		free(list);
		list = more;
		if (i == 1) {
			ok(tpck_owed_folder_is_in(list, "/out/step0") && tpck_owed_folder_is_in(list, "/out/step0/below"), "a folder is one of the list's, or below one");
			ok(tpck_owed_folder_is_in(list, "/out/step1\nb"), "whatever it is called");
			ok(!tpck_owed_folder_is_in(list, "/out") && !tpck_owed_folder_is_in(list, "/out/step00") && !tpck_owed_folder_is_in(list, "/out/step"),
			   "not above one, nor beside it");
			ok(!tpck_owed_folder_is_in(list, "/out/step0/..") && !tpck_owed_folder_is_in(list, "/out/step0/../x") &&
				   !tpck_owed_folder_is_in(list, "/out/step0/./x") && !tpck_owed_folder_is_in(list, "out/step0"),
			   "nor by a way that leads up");
			ok(tpck_owed_folder_is_in(list, "/out/step0/..x"), "which a name with dots is not");
		}
	}
	for (at = list; (at = strchr(at, '\n')); at++)
		count++;
	ok(count == TPCK_OWED_FOLDERS && !tpck_owed_folder_is_in(list, "/out/step0"), "the oldest go where there are too many");
	ok(!tpck_owed_folder_is_in("", "/out"), "none is in a list of none");
	free(list);
}

int main(void)
{
	test_records();
	test_folders();
	test_verdicts();
	return tap_done();
}
