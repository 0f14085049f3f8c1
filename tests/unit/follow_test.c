/* SPDX-License-Identifier: Apache-2.0 */
/* Files: a program that works with files is recorded, and run forward in another process over what it left behind. Each
 * call must say the same there, and in the end the tree must be what it was at the boundary. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "runtime/follow/follow.h"
#include "runtime/follow/follow_private.h"
#include "runtime/track/threads.h"
#include "tests/unit/store_tap.h"

enum { SAID = 1 << 16, GROUPS = 12, MANY = 50 };

static char root[200], real_root[200]; /* the program knows its folder by a symbolic link */
static char said[SAID];
static size_t said_bytes;

static void say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	said_bytes += (size_t)vsnprintf(said + said_bytes, SAID - said_bytes, format, args);
	va_end(args);
}

static const char *in(const char *name)
{
	static char paths[4][300];
	static unsigned turn;
	char *path = paths[turn++ % 4];

	snprintf(path, sizeof paths[0], "%s/%s", root, name);
	return path;
}

/* ---- what a program does, each call with what it said ---- */

static int result_of(const char *what, const char *name, long result)
{
	say("%s %s: %ld %s\n", what, name, result, result < 0 ? strerror(errno) : "");
	return (int)result;
}

static void put(const char *name, int flags, mode_t mode, const char *text)
{
	int fd = tpck_layer_follow.open(TPCK_AT(AT_FDCWD, in(name)), O_WRONLY | flags, mode);

	result_of("open", name, fd < 0 ? -1 : 0);
	if (fd >= 0) {
		(void)!write(fd, text, strlen(text));
		close(fd);
	}
}

/* A file without a name in a folder. */
static void nameless(const char *name)
{
	char text[20] = "";
	int fd = tpck_layer_follow.open(TPCK_AT(AT_FDCWD, in(name)), O_TMPFILE | O_RDWR, 0600);

	result_of("open without a name", name, fd < 0 ? -1 : 0);
	if (fd >= 0) {
		(void)!write(fd, "nameless", 8);
		(void)!pread(fd, text, sizeof text - 1, 0);
		say("  %s\n", text);
		close(fd);
	}
}

static void get(const char *name)
{
	char text[200] = "";
	int fd = tpck_layer_follow.open(TPCK_AT(AT_FDCWD, in(name)), O_RDONLY, 0);

	result_of("read", name, fd < 0 ? -1 : 0);
	if (fd >= 0) {
		(void)!read(fd, text, sizeof text - 1);
		say("  %s\n", text);
		close(fd);
	}
}

/* Not by the link that the program knows its folder by. */
static int real_name(const char *name)
{
	char path[300], text[100] = "";
	int fd;

	snprintf(path, sizeof path, "%s/%s", real_root, name);
	fd = tpck_layer_follow.open(TPCK_AT(AT_FDCWD, path), O_RDONLY, 0);
	if (fd < 0)
		return -1;
	(void)!read(fd, text, sizeof text - 1);
	say("  %s\n", text);
	close(fd);
	return 0;
}

static void look(const char *name, int flags)
{
	struct stat found = {0};

	if (result_of("stat", name, tpck_layer_follow.stat(TPCK_AT(AT_FDCWD, in(name)), &found, flags)) == 0)
		/* The mode of then is not kept of what was there before. */
		say("  %o %ld\n", (unsigned)found.st_mode & (strcmp(name, "data") == 0 ? S_IFMT : ~0u),
		    S_ISREG(found.st_mode) ? (long)found.st_size : 0);
}

static void folder(const char *name)
{
	result_of("mkdir", name, tpck_layer_follow.mkdir(TPCK_AT(AT_FDCWD, in(name)), 0755));
}

static void away(const char *name, int flags)
{
	result_of("unlink", name, tpck_layer_follow.unlink(TPCK_AT(AT_FDCWD, in(name)), flags));
}

static void move(const char *from, const char *to)
{
	result_of("rename", from, tpck_layer_follow.rename(TPCK_AT(AT_FDCWD, in(from)), TPCK_AT(AT_FDCWD, in(to)), 0));
}

static void point(const char *target, const char *name)
{
	result_of("symlink", name, tpck_layer_follow.symlink(target, TPCK_AT(AT_FDCWD, in(name))));
}

/* As Python's shutil.rmtree() goes about it. */
static void tree_away(int parent, const char *name)
{
	char names[32][64];
	int count = 0, fd, copy;
	struct dirent *entry;
	struct stat before = {0}, now = {0};
	DIR *listed;

	result_of("lstat", name, tpck_layer_follow.stat(TPCK_AT(parent, name), &before, AT_SYMLINK_NOFOLLOW));
	fd = tpck_layer_follow.open(TPCK_AT(parent, name), O_RDONLY | O_CLOEXEC, 0);
	if (result_of("open folder", name, fd < 0 ? -1 : 0))
		return;
	say("  %s\n", !fstat(fd, &now) && now.st_ino == before.st_ino && now.st_dev == before.st_dev ? "the same" : "another");
	copy = dup(fd);
	tpck_follow_listing_of(copy);
	listed = fdopendir(copy);
	while (listed && (entry = readdir(listed)))
		if (entry->d_name[0] != '.' && count < 32)
			snprintf(names[count++], sizeof names[0], "%s%.60s", entry->d_type == DT_DIR ? "d" : "f", entry->d_name);
	if (listed)
		closedir(listed);
	for (int i = 0; i < count; i++)
		if (names[i][0] == 'd')
			tree_away(fd, names[i] + 1);
		else
			result_of("unlink in", names[i] + 1, tpck_layer_follow.unlink(TPCK_AT(fd, names[i] + 1), 0));
	close(fd);
	result_of("rmdir", name, tpck_layer_follow.unlink(TPCK_AT(parent, name), AT_REMOVEDIR));
}

static void times(const char *name)
{
	const struct timespec when[2] = {{1000000, 0}, {2000000, 500}};

	result_of("times", name, tpck_layer_follow.times(TPCK_AT(AT_FDCWD, in(name)), when, 0));
}

/* An extended attribute, where the file system has them. */
static void note(const char *name, const char *value)
{
	char buffer[TPCK_LAYER_PATH], got[40] = "";
	const char *at = tpck_layer_follow.place(TPCK_AT(AT_FDCWD, in(name)), true, true, buffer);

	result_of("setxattr", name, at ? setxattr(at, "user.note", value, strlen(value), 0) : -1);
	at = tpck_layer_follow.place(TPCK_AT(AT_FDCWD, in(name)), true, false, buffer);
	result_of("getxattr", name, at ? getxattr(at, "user.note", got, sizeof got - 1) : -1);
	say("  %s\n", got);
}

/* A program that is started: it knows nothing of what is held back. */
static void other_program(const char *command)
{
	char text[700];

	snprintf(text, sizeof text, "cd '%s/tmp' && %s", real_root, command);
	result_of("run", command, system(text)); /* NOLINT: a test's own words */
}

/* A compiler is given a source in a temporary folder, and what it makes is moved to where it stays. */
static void compile(const char *temporary, bool leaves)
{
	char name[100];

	snprintf(name, sizeof name, "tmp/%s", temporary);
	result_of("mkdtemp", name, tpck_layer_follow.mkdir(TPCK_AT(AT_FDCWD, in(name)), 0700));
	snprintf(name, sizeof name, "tmp/%s/source", temporary);
	put(name, O_CREAT, 0644, "source");
	snprintf(name, sizeof name, "tr a-z A-Z <%s/source >%s/object", temporary, temporary);
	other_program(name);
	snprintf(name, sizeof name, "tmp/%s/object", temporary);
	get(name);
	move(name, "object");
	get("object");
	snprintf(name, sizeof name, "tmp/%s", temporary);
	if (!leaves)
		tree_away(AT_FDCWD, in(name));
}

/* A compiler is given a source whose name is another one in each run, as XLA's are. */
static void compile_named(void)
{
	char name[100], text[700], got[40] = "";
	struct timespec now;
	int fd;

	clock_gettime(CLOCK_MONOTONIC, &now);
	snprintf(name, sizeof name, "tmp/source-%lld.%09ld", (long long)now.tv_sec, now.tv_nsec);
	fd = tpck_layer_follow.open(TPCK_AT(AT_FDCWD, in(name)), O_WRONLY | O_CREAT | O_TRUNC, 0666);
	say("a source: %s\n", fd >= 0 && write(fd, "named", 5) == 5 ? "written" : "not there");
	close(fd);
	snprintf(text, sizeof text, "cd '%s' && tr a-z A-Z <%s >%s.object", real_root, name, name);
	say("a compiler: %d\n", system(text)); /* NOLINT: a test's own words */
	say("its source: %d\n", tpck_layer_follow.unlink(TPCK_AT(AT_FDCWD, in(name)), 0));
	strcat(name, ".object");
	fd = tpck_layer_follow.open(TPCK_AT(AT_FDCWD, in(name)), O_RDONLY, 0);
	say("what it made: %s\n", fd >= 0 && read(fd, got, sizeof got - 1) == 5 ? got : "not there");
	close(fd);
	say("removed: %d\n", tpck_layer_follow.unlink(TPCK_AT(AT_FDCWD, in(name)), 0));
}

/* As Rust's tempfile does: by a system call that is not libc's, so that nobody sees what name the file gets. */
static void move_unseen(const char *from, const char *to)
{
#ifdef __x86_64__
	long result;

	__asm__ volatile("syscall" : "=a"(result) : "a"(SYS_rename), "D"(in(from)), "S"(in(to)) : "rcx", "r11", "memory");
	say("rename %s: %ld\n", from, result);
#else
	move(from, to);
#endif
}

/* By a path from where the program is then. */
static void from(const char *folder, const char *name)
{
	char text[100] = "";
	struct stat found;
	int fd;

	tpck_follow_leaves();
	result_of("chdir", folder, chdir(in(folder)));
	tpck_follow_left();
	result_of("stat from there", name, tpck_layer_follow.stat(TPCK_AT(AT_FDCWD, name), &found, 0));
	fd = tpck_layer_follow.open(TPCK_AT(AT_FDCWD, name), O_RDONLY, 0);
	if (result_of("open from there", name, fd < 0 ? -1 : 0) == 0) {
		(void)!read(fd, text, sizeof text - 1);
		say("  %s\n", text);
		close(fd);
	}
}

/* The same for a file that is made. */
static void put_from(const char *folder, const char *name, const char *text)
{
	int fd;

	tpck_follow_leaves();
	result_of("chdir", folder, chdir(in(folder)));
	tpck_follow_left();
	fd = tpck_layer_follow.open(TPCK_AT(AT_FDCWD, name), O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (result_of("make from there", name, fd < 0 ? -1 : 0) == 0) {
		(void)!write(fd, text, strlen(text));
		close(fd);
	}
}

static void list(const char *name)
{
	const char *instead = tpck_follow_listing(in(name));
	DIR *listed = opendir(instead ? instead : in(name));
	const struct dirent *entry;

	if (result_of("list", name, listed ? 0 : -1))
		return;
	tpck_follow_listed(in(name), dirfd(listed));
	while ((entry = readdir(listed)))
		if (entry->d_name[0] != '.')
			say("  %s\n", entry->d_name);
	closedir(listed);
}

/* Part g of the program; parts before the boundary are run twice. */
static void program(int g)
{
	switch (g) {
	case 0: /* what was there before is read, changed, replaced */
		get("data");
		put("log", O_APPEND, 0, "more\n");
		list("base");
		put("base/inside", O_CREAT, 0644, "inside");
		list("old");
		look("data", 0);
		look("none", 0);
		get("none");
		from("", "data");
		from("tmp", "../only");
		from("tmp", "../nothing");
		/* By a link that is made when its name has been looked at. */
		get("linked/deep");
		look("linked", 0);
		point("held", "linked");
		get("linked/deep");
		/* By a link that leads elsewhere when the file is written over. */
		get("turned/deep");
		move("ready", "turned");
		put("held/deep", O_TRUNC, 0, "written over");
		look("turned", 0);
		break;
	case 1: /* a checkpoint: written beside, renamed; the last one pointed to; the one before removed with its folder */
		get("first");
		put("first", O_TRUNC, 0, "first, written over");
		get("by/second");
		folder("old/outer");
		put("second", O_TRUNC, 0, "second, written over by its own name");
		folder("run");
		folder("run/step-1");
		nameless("run/step-1");
		put("run/step-1/weights.tmp", O_CREAT | O_EXCL, 0640, "weights of one");
		move("run/step-1/weights.tmp", "run/step-1/weights");
		put("run/step-1/state", O_CREAT, 0666, "state of one");
		point("step-1", "run/last");
		look("run/last", AT_SYMLINK_NOFOLLOW);
		look("run/last", 0);
		get("run/last/weights");
		get("run/../run/last/./state");
		break;
	case 2:
		folder("run/.new");
		put("run/.new/weights", O_CREAT, 0666, "weights of two");
		folder("run/.new/deep");
		put("run/.new/deep/state", O_CREAT, 0666, "state of two");
		move("run/.new", "run/step-2");
		look("run/.new", 0);
		get("run/step-2/deep/state");
		away("run/last", 0);
		point("step-2", "run/last");
		get("run/last/weights");
		get("run/last/deep/state");
		put("run/last/extra", O_CREAT, 0644, "extra");
		get("run/step-2/extra");
		away("run/last/extra", 0);
		tree_away(AT_FDCWD, in("run/step-1"));
		look("run/step-1", 0);
		get("run/step-1/weights");
		break;
	case 3: /* modes and times */
		put("secret", O_CREAT, 0600, "s");
		result_of("chmod", "secret", tpck_layer_follow.chmod(TPCK_AT(AT_FDCWD, in("secret")), 0440));
		result_of("chmod", "data", tpck_layer_follow.chmod(TPCK_AT(AT_FDCWD, in("data")), 0444));
		look("secret", 0);
		put("stamped", O_CREAT, 0644, "t");
		note("stamped", "an attribute");
		times("stamped");
		compile("one", false);
		compile("two", true);
		compile_named();
		break;
	case 4: /* names of one file, and a file by a link */
		result_of("link", "hard", tpck_layer_follow.link(TPCK_AT(AT_FDCWD, in("run/step-2/weights")), TPCK_AT(AT_FDCWD, in("hard")), 0));
		get("hard");
		point("run/step-2/weights", "soft");
		get("soft");
		put("soft", O_APPEND, 0, " and more");
		get("run/step-2/weights");
		result_of("link", "again", tpck_layer_follow.link(TPCK_AT(AT_FDCWD, in("secret")), TPCK_AT(AT_FDCWD, in("hard")), 0));
		break;
	case 5: { /* where a link leads */
		char target[100] = "";

		result_of("readlink", "soft", tpck_layer_follow.readlink(TPCK_AT(AT_FDCWD, in("soft")), target, sizeof target - 1));
		say("  %s\n", target);
		result_of("readlink", "data", tpck_layer_follow.readlink(TPCK_AT(AT_FDCWD, in("data")), target, sizeof target));
		result_of("readlink", "none", tpck_layer_follow.readlink(TPCK_AT(AT_FDCWD, in("none")), target, sizeof target));
		point("elsewhere", "soft");
		/* One that was there before goes to another place, and comes back behind the boundary. */
		get("pointer/deep");
		point("run/step-2", "pointer.new");
		move("pointer.new", "pointer");
		get("pointer/weights");
		look("pointer", AT_SYMLINK_NOFOLLOW);
		point("nowhere", "dangling");
		get("dangling");
		look("dangling", 0);
		break;
	}
	case 6: /* what was there before goes away as a tree */
		tree_away(AT_FDCWD, in("old"));
		look("old/inner/deep", 0);
		folder("old");
		put("old/fresh", O_CREAT, 0644, "fresh");
		/* The same file by the names that its folders have. */
		get("fixed/fresh");
		result_of("open", "by its real name", real_name("old/fresh"));
		put("tmp/two/more", O_CREAT, 0644, "more");
		/* Into a compiler's cache, which is real, and out of it. */
		put("built", O_CREAT, 0644, "built");
		move("built", "caches/built");
		look("built", 0);
		other_program("cat ../caches/built >seen && rm seen");
		get("caches/built");
		put("caches/other", O_CREAT | O_TRUNC, 0644, "other");
		move("caches/other", "taken");
		get("taken");
		break;
	case 7: /* a file of before is renamed, then appended to under its new name: the version of before is what is read again */
		get("note");
		move("note", "note.old");
		put("note.old", O_APPEND, 0, "appended\n");
		get("note.old");
		break;
	/* Behind the boundary: none of it may be left. */
	case 8:
		put("data", O_TRUNC, 0, "other data");
		put("only", O_TRUNC, 0, "other");
		put("log", O_APPEND, 0, "beyond\n");
		put("note.old", O_APPEND, 0, "beyond\n");
		break;
	case 9:
		folder("run/step-3");
		folder("run/step-3/deep");
		put("run/step-3/deep/weights", O_CREAT, 0666, "three");
		point("../x", "run/step-3/deep/link");
		away("run/last", 0);
		point("step-3", "run/last");
		tree_away(AT_FDCWD, in("run/step-2"));
		folder("run/.four");
		folder("run/.four/deep");
		put("run/.four/deep/weights", O_CREAT, 0666, "four");
		move("run/.four", "run/step-4");
		folder("run/step-5");
		put("run/step-5/.tmpAbCdEf", O_CREAT | O_EXCL, 0600, "five");
		move_unseen("run/step-5/.tmpAbCdEf", "run/step-5/weights");
		/* One name in two folders; and a link by the name of a file that was made a moment ago. */
		look("data", 0);
		put_from("", "same", "here");
		put_from("tmp", "same", "there");
		from("", "same");
		put("swapped", O_CREAT, 0644, "made");
		away("swapped", 0);
		point("behind", "swapped");
		get("swapped");
		put("swapped", O_TRUNC, 0, "the link");
		get("behind");
		break;
	case 10:
		away("pointer", 0);
		point("old", "pointer");
		away("fixed", 0);
		point("base", "fixed");
		result_of("chmod", "secret", tpck_layer_follow.chmod(TPCK_AT(AT_FDCWD, in("secret")), 0644));
		put("secret", O_TRUNC, 0, "other");
		put("old/more", O_CREAT, 0644, "more");
		away("old/fresh", 0);
		break;
	default:
		tree_away(AT_FDCWD, in("base"));
		tree_away(AT_FDCWD, in("tmp/two"));
		compile("three", true);
		put("beyond", O_CREAT, 0644, "beyond");
		away("stamped", 0);
		away("soft", 0);
		break;
	}
}

/* ---- the tree as text ---- */

static int tree_out;

static int tree_entry(const char *path, const struct stat *found, int flag, struct FTW *where)
{
	char text[300] = "", line[800], attribute[40] = "";
	int fd, length;

	(void)flag;
	(void)where;
	if (strstr(path, "/caches/"))
		return 0;
	if (S_ISLNK(found->st_mode)) {
		(void)!readlink(path, text, sizeof text - 1);
	} else if (S_ISREG(found->st_mode)) {
		fd = open(path, O_RDONLY);
		(void)!read(fd, text, sizeof text - 1);
		(void)!fgetxattr(fd, "user.note", attribute, sizeof attribute - 1);
		close(fd);
	}
	length = snprintf(line, sizeof line, "%s %o %s %s%s\n", path + strlen(real_root), (unsigned)found->st_mode, text, attribute,
			  strstr(path, "/stamped") && found->st_mtim.tv_sec != 2000000 ? " (of another time)" : "");
	(void)!write(tree_out, line, (size_t)length);
	return 0;
}

static char *text_of(const char *path)
{
	char *text = calloc(1, SAID);
	int fd = open(path, O_RDONLY);

	(void)!read(fd, text, SAID - 1);
	close(fd);
	return text;
}

/* The lines in order, since folders list theirs in any. */
static int by_line(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void tree(const char *into)
{
	char *text, *lines[400], *at;
	int count = 0, fd;

	tree_out = open(into, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	nftw(real_root, tree_entry, 16, FTW_PHYS);
	close(tree_out);
	text = text_of(into);
	/* Contents end in a line break here and there: a line is what begins with a slash. */
	for (at = text; at && *at && count < 400; at = strstr(at, "\n/"), at = at ? at + 1 : NULL) {
		if (at != text)
			at[-1] = '\0';
		lines[count++] = at;
	}
	qsort(lines, (size_t)count, sizeof *lines, by_line);
	fd = open(into, O_WRONLY | O_TRUNC);
	for (int i = 0; i < count; i++)
		dprintf(fd, "%s|\n", lines[i]);
	close(fd);
	free(text);
}

static void write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	(void)!write(fd, text, strlen(text));
	close(fd);
}

static struct tpck_log_position cut;
static char log_folder[200], keep[200], scratch[200], base[160];

static int early; /* parts that come before there is a device */

static struct tpck_log *record_begin(void)
{
	struct tpck_log *log = tpck_log_new(1 << 24);

	if (!log || tpck_log_attach(log, log_folder, 1, NULL))
		_exit(97);
	tpck_follow_record(log, keep, 1);
	return log;
}

/* The boundary: where the process that runs forward ends. */
static void cut_here(struct tpck_log *log)
{
	char path[300];
	int fd;

	cut = tpck_log_end(log);
	snprintf(path, sizeof path, "%s/cut", log_folder);
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	(void)!write(fd, &cut, sizeof cut);
	close(fd);
}

static void record(int boundary)
{
	struct tpck_log *log = record_begin();
	char path[300];

	if (early)
		tpck_follow_early(getpid());
	for (int g = 0; g < boundary; g++) {
		program(g);
		if (g + 1 == early)
			tpck_follow_device();
	}
	cut_here(log);
	snprintf(path, sizeof path, "%s/said", base);
	write_text(path, said);
	snprintf(path, sizeof path, "%s/want", base);
	tree(path);
	for (int g = 8; g < GROUPS; g++)
		program(g);
}

/* A file that is open and mapped at the boundary: both are the real file's behind it, and it is the same one. */
static struct {
	const char *name;
	struct stat found;
	char *mapped;
	int fd;
} kept;

static void hold(const char *name)
{
	kept.name = name;
	kept.fd = tpck_layer_follow.open(TPCK_AT(AT_FDCWD, in(name)), O_RDWR, 0);
	fstat(kept.fd, &kept.found);
	kept.mapped = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, kept.fd, 0);
}

static bool holds(void)
{
	struct stat by_name = {0}, by_descriptor = {0};
	char text[9] = "", first = kept.mapped[0];
	int fd = open(in(kept.name), O_RDONLY);

	kept.mapped[0] = '#';
	(void)!pread(fd, text, 8, 0);
	close(fd);
	if (text[0] != '#' || strncmp(text + 1, kept.mapped + 1, 7) != 0)
		return false;
	kept.mapped[0] = first;
	tpck_layer_follow.stat(TPCK_AT(AT_FDCWD, in(kept.name)), &by_name, 0);
	fstat(kept.fd, &by_descriptor);
	tpck_follow_shown(&by_descriptor);
	return tpck_follow_shows() && by_name.st_ino == kept.found.st_ino && by_name.st_dev == kept.found.st_dev &&
	       by_descriptor.st_ino == kept.found.st_ino && by_descriptor.st_dev == kept.found.st_dev;
}

static bool older(const char *one, const char *other)
{
	struct stat a, b;

	return !stat(in(one), &a) && !stat(in(other), &b) &&
	       (a.st_mtim.tv_sec < b.st_mtim.tv_sec ||
		(a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec <= b.st_mtim.tv_nsec));
}

static void forward_begin(void)
{
	struct tpck_log_reader *reader;
	const struct tpck_record *one;
	char path[300];
	int fd;

	snprintf(path, sizeof path, "%s/cut", log_folder);
	fd = open(path, O_RDONLY);
	if (read(fd, &cut, sizeof cut) != sizeof cut || tpck_log_open(&reader, log_folder, cut))
		_exit(97);
	close(fd);
	tpck_follow_record(tpck_log_new(1 << 24), keep, 1);
	while ((one = tpck_log_next(reader)))
		if (one->type == TPCK_RECORD_FILE)
			tpck_follow_learn(one);
}

static void run_forward(int boundary)
{
	char path[300], why[300] = "";
	int held;

	forward_begin();
	/* Links that the program itself has set elsewhere are no reason to refuse it. */
	if (!tpck_learnt_links_lead(why, sizeof why))
		_exit(92);
	if (tpck_follow_forward(scratch, true, true))
		_exit(98);
	for (int g = 0; g < boundary; g++)
		program(g);
	held = boundary > 2 ? tpck_layer_follow.open(TPCK_AT(AT_FDCWD, in("run/step-2")), O_RDONLY | O_DIRECTORY, 0) : -1;
	hold(boundary > 2 ? "run/step-2/weights" : "log");
	if (tpck_follow_difference())
		snprintf(why, sizeof why, "%s", tpck_follow_difference());
	else if (!tpck_follow_inject(1, why, sizeof why))
		why[0] = '\0';
	snprintf(path, sizeof path, "%s/why", base);
	write_text(path, why);
	snprintf(path, sizeof path, "%s/said.forward", base);
	write_text(path, said);
	snprintf(path, sizeof path, "%s/got", base);
	tree(path);
	if (held >= 0 && faccessat(held, "weights", F_OK, 0))
		_exit(96);
	if (!holds())
		_exit(95);
	/* Made in this order; what was made in the first behind the boundary has gone again. */
	if (boundary > 6 && !older("run", "old/fresh"))
		_exit(94);
	if (boundary > 6 && !older("run/step-2/deep/state", "old/fresh"))
		_exit(93);
}

static int in_child(void (*run)(int), int boundary)
{
	int status = -1;
	pid_t child;

	fflush(stdout);
	child = fork();

	if (!child) {
		run(boundary);
		fflush(stdout);
		_exit(0);
	}
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool same_text(const char *a, const char *b, const char *what)
{
	char path[300], *one, *two, *x, *y;
	bool same;

	snprintf(path, sizeof path, "%s/%s", base, a);
	one = text_of(path);
	snprintf(path, sizeof path, "%s/%s", base, b);
	two = text_of(path);
	same = strcmp(one, two) == 0 && *one;
	if (!same) {
		for (x = one, y = two; *x && *x == *y; x++, y++)
			;
		while (x > one && x[-1] != '\n')
			x--, y--;
		printf("# %s: wanted \"%.*s\", got \"%.*s\"\n", what, (int)strcspn(x, "\n"), x, (int)strcspn(y, "\n"), y);
	}
	free(one);
	free(two);
	return same;
}

/* ---- two ranks, and a folder that one of them makes after the boundary ---- */

static void as_rank(int rank)
{
	snprintf(keep, sizeof keep, "%s/keep/%d", base, rank);
	snprintf(log_folder, sizeof log_folder, "%s/log/%d", base, rank);
}

static void rank_records(int rank)
{
	as_rank(rank);
	if (mkdir(keep, 0700) || mkdir(log_folder, 0700))
		_exit(98);
	cut_here(record_begin());
	if (rank == 0)
		folder("shared");
	put(rank == 0 ? "shared/zero" : "shared/one", O_CREAT, 0644, "text");
}

static void rank_goes_on(int rank)
{
	char why[300];

	as_rank(rank);
	forward_begin();
	if (tpck_follow_forward(scratch, true, true) || tpck_follow_inject(1, why, sizeof why))
		_exit(98);
}

/* Another rank makes a folder while this one is about to, which then has something in it at the boundary. */
static void in_anothers(bool records)
{
	char path[300];

	look("anothers", 0);
	if (records) {
		snprintf(path, sizeof path, "%s/anothers", real_root);
		mkdir(path, 0755);
		tpck_follow_creates(path);
	}
	folder("anothers/own");
	put("anothers/own/file", O_CREAT, 0644, "text");
	/* Enough beside it that its place among all is found only where they are in order. */
	folder("many");
	for (unsigned i = 0; i < MANY; i++) {
		snprintf(path, sizeof path, "many/file-%u", i * 37 % MANY);
		put(path, O_CREAT, 0644, "text");
	}
}

static bool in_order(void)
{
	struct tpck_overlay_entry **all;
	uint32_t count;
	bool good;

	all = tpck_overlay_sorted(&count);
	good = all && count > MANY;
	for (uint32_t i = 1; good && i < count; i++)
		good = strcmp(all[i - 1]->path, all[i]->path) < 0;
	free(all);
	return good;
}

static void anothers_recorded(int rank)
{
	struct tpck_log *log;

	as_rank(rank);
	if (mkdir(keep, 0700) || mkdir(log_folder, 0700))
		_exit(98);
	log = record_begin();
	in_anothers(true);
	cut_here(log);
}

static void anothers_forward(int rank)
{
	char why[300], path[300];

	as_rank(rank);
	forward_begin();
	if (tpck_follow_forward(scratch, true, true))
		_exit(98);
	in_anothers(false);
	if (!in_order())
		_exit(96);
	if (tpck_follow_inject(2, why, sizeof why))
		_exit(97);
	/* Nobody is asked to remove it. */
	snprintf(path, sizeof path, "%s/keep/leaving.g1.s2", base);
	_exit(!access(path, F_OK) ? 91 : access(in("anothers/own/file"), F_OK) ? 92 : 0);
}

static void ranks(void)
{
	bool recorded = in_child(rank_records, 0) == 0 && in_child(rank_records, 1) == 0;

	for (int first = 0; first < 2; first++) {
		tap_ok(recorded && !access(in("shared/one"), F_OK), "two ranks have made a folder and files in it", "");
		tap_ok(in_child(rank_goes_on, first) == 0 && !access(in("shared"), F_OK) &&
			       access(in(first ? "shared/one" : "shared/zero"), F_OK),
		       "one goes on from before: what it made has gone", "");
		tap_ok(in_child(rank_goes_on, !first) == 0 && access(in("shared"), F_OK), "both do: so has the folder", "");
		mkdir(in("shared"), 0755);
		write_text(in("shared/zero"), "text");
		write_text(in("shared/one"), "text");
	}
	tap_ok(in_child(anothers_recorded, 2) == 0 && in_child(anothers_forward, 2) == 0,
	       "a folder that another rank made stays, where something is in it", "");
	write_text(in("shared/other"), "somebody else's");
	tap_ok(in_child(rank_goes_on, 0) == 0 && in_child(rank_goes_on, 1) == 0 && !access(in("shared/other"), F_OK),
	       "what is none of theirs stays, and its folder", "");
}

/* ---- the times of files ---- */

static const char *const timed[] = {"t-first", "t-log", "t-second", "t-given"};
enum { TIMED = sizeof timed / sizeof *timed };

/* The program: files, each written some ticks behind the one before it. */
static void timed_part(void)
{
	const struct timespec given[2] = {{1000000000, 7}, {1000000000, 7}}, pause = {0, 30000000};

	for (int i = 0; i < TIMED; i++) {
		put(timed[i], O_CREAT, 0644, "text");
		nanosleep(&pause, NULL);
	}
	tpck_layer_follow.times(TPCK_AT(AT_FDCWD, in("t-given")), given, 0);
}

static void timed_records(int rank)
{
	struct tpck_log *log;

	as_rank(rank);
	if (mkdir(keep, 0700) || mkdir(log_folder, 0700))
		_exit(98);
	log = record_begin();
	timed_part();
	cut_here(log);
	put("t-log", O_APPEND, 0644, "more");
	put("t-given", O_APPEND, 0644, "more");
}

static void timed_forward(int rank)
{
	struct stat before[TIMED], after[TIMED];
	char why[300];

	as_rank(rank);
	for (int i = 0; i < TIMED; i++)
		if (stat(in(timed[i]), &before[i]))
			_exit(99);
	forward_begin();
	if (tpck_follow_forward(scratch, true, true))
		_exit(98);
	timed_part();
	if (tpck_follow_inject(2, why, sizeof why))
		_exit(97);
	for (int i = 0; i < TIMED; i++)
		if (stat(in(timed[i]), &after[i]) || after[i].st_size != 4)
			_exit(96);
	if (memcmp(&before[0].st_mtim, &after[0].st_mtim, sizeof before[0].st_mtim) || memcmp(&before[2].st_mtim, &after[2].st_mtim, sizeof before[0].st_mtim))
		_exit(90);
	if (!older("t-first", "t-log") || !older("t-log", "t-second"))
		_exit(91);
	_exit(after[3].st_mtim.tv_sec == 1000000000 && after[3].st_mtim.tv_nsec == 7 ? 0 : 92);
}

static void file_times(void)
{
	int status = in_child(timed_records, 7) == 0 ? in_child(timed_forward, 7) : -1;

	printf("# status %d\n", status);
	tap_ok(status == 0, "what is right keeps its time, and what is written anew is no newer than what the program wrote behind it", "");
}

/* ---- names with the process's number ---- */

/* Whether a listing of the folder has the name. */
static bool lists(const char *folder_name, const char *name)
{
	const char *instead = tpck_follow_listing(in(folder_name));
	DIR *listed = opendir(instead ? instead : in(folder_name));
	const struct dirent *entry;
	bool found = false;

	while (listed && (entry = readdir(listed)))
		found |= strcmp(entry->d_name, name) == 0;
	if (listed)
		closedir(listed);
	return found;
}

/* A name with the process's number in it. */
static void number_of(const char *form, char *name, size_t size)
{
	snprintf(name, size, form, getpid());
}

static void numbered_begins(void)
{
	char name[80];

	number_of("n-%d.log", name, sizeof name);
	put(name, O_CREAT, 0644, "begun\n");
	number_of("n-%d", name, sizeof name);
	folder(name);
	/* A program that it has started ends: what it finds from here on may have been made by that. */
	tpck_thread_self();
	tpck_follow_others_ran();
}

/* A part of the program: a file that it makes, and sees in its folders. */
static void numbered_part(int part)
{
	char name[80], own_folder[80], file[80], around[TPCK_LAYER_PATH];
	struct stat found;
	int fd;

	number_of("n-%d", own_folder, sizeof own_folder);
	snprintf(name, sizeof name, "n-%d/%d.part-%d", getpid(), getpid(), part);
	put(name, O_CREAT | O_EXCL, 0644, "part\n");
	number_of("n-%d.log", file, sizeof file);
	put(file, O_APPEND, 0, "part\n");
	fd = tpck_layer_follow.open(TPCK_AT(AT_FDCWD, in(file)), O_RDONLY, 0);
	if (fd < 0 || fstat(fd, &found))
		_exit(70);
	tpck_follow_shown(&found);
	if (found.st_nlink != 1 || tpck_layer_follow.stat(TPCK_AT(AT_FDCWD, in(file)), &found, 0) || found.st_nlink != 1)
		_exit(71);
	close(fd);
	put("n-gone", O_CREAT, 0644, "gone");
	fd = tpck_layer_follow.open(TPCK_AT(AT_FDCWD, in("n-gone")), O_RDONLY, 0);
	tpck_layer_follow.unlink(TPCK_AT(AT_FDCWD, in("n-gone")), 0);
	if (fd < 0 || fstat(fd, &found))
		_exit(72);
	tpck_follow_shown(&found);
	if (found.st_nlink)
		_exit(73);
	close(fd);
	if (faccessat(AT_FDCWD, tpck_layer_follow.around(TPCK_AT(AT_FDCWD, in(own_folder)), around), F_OK, 0) || tpck_layer_follow.around(TPCK_AT(AT_FDCWD, in("n-none")), around) == around)
		_exit(74);
	if (!lists(own_folder, strchr(name, '/') + 1) || !lists(".", own_folder) || !lists(".", file))
		_exit(90 + part);
}

static int numbered_left; /* entries that a process of another number has made */
static int count_numbered(const char *path, const struct stat *found, int flag, struct FTW *at)
{
	const char *name = path + at->base;
	char own[20];

	(void)found;
	(void)flag;
	snprintf(own, sizeof own, "%d", getpid());
	numbered_left += (strncmp(name, "n-", 2) == 0 || strstr(name, ".part-")) && !strstr(path, own);
	return 0;
}

/* Goes on from the cut of the log, if there is one, makes parts up to the boundary, and one more behind it. */
static void numbered_run(int boundary)
{
	struct tpck_log *log = tpck_log_new(1 << 24);
	char path[300], why[300];
	int fd, part = 0;

	as_rank(5);
	snprintf(scratch, sizeof scratch, "%s/scratch/%d", base, getpid());
	mkdir(scratch, 0700);
	snprintf(path, sizeof path, "%s/cut", log_folder);
	fd = open(path, O_RDONLY);
	if (fd < 0) {
		if (mkdir(keep, 0700) || mkdir(log_folder, 0700))
			_exit(80);
		tpck_follow_record(log, "", 0);
		numbered_begins(); /* before there is a place to say so */
		tpck_follow_record(log, keep, 1);
		if (tpck_log_attach(log, log_folder, 1, NULL))
			_exit(81);
	} else {
		struct tpck_log_reader *reader;
		const struct tpck_record *one;

		if (read(fd, &cut, sizeof cut) != sizeof cut || tpck_log_open(&reader, log_folder, cut))
			_exit(82);
		close(fd);
		tpck_follow_record(log, "", 0);
		tpck_follow_record(log, keep, 1);
		while ((one = tpck_log_next(reader)))
			if (one->type == TPCK_RECORD_FILE)
				tpck_follow_learn(one);
		if (tpck_follow_forward(scratch, true, true))
			_exit(83);
		numbered_begins();
		while (part < boundary - 2)
			numbered_part(part++);
		if (tpck_log_attach(log, log_folder, 1, &cut) || tpck_follow_inject(1, why, sizeof why))
			_exit(84);
		nftw(in("."), count_numbered, 16, FTW_PHYS);
		if (numbered_left)
			_exit(85);
	}
	while (part < boundary)
		numbered_part(part++);
	cut_here(log);
	numbered_part(part);
}

/* A folder for each save, which is renamed, and the one before goes: more of them than there are stand-ins at a time. */
static void each_save_run(int saves)
{
	unsigned left = 0;
	DIR *list;

	snprintf(scratch, sizeof scratch, "%s/scratch/%d", base, getpid());
	mkdir(scratch, 0700);
	tpck_follow_record(tpck_log_new(1 << 20), "", 0);
	if (tpck_follow_forward(scratch, true, true))
		_exit(83);
	for (int i = 0; i < saves; i++) {
		char part[40], whole[40], old[40];
		struct stat found;

		snprintf(part, sizeof part, "save-%d.part", i);
		snprintf(whole, sizeof whole, "save-%d", i);
		snprintf(old, sizeof old, "save-%d", i - 1);
		if (tpck_layer_follow.mkdir(TPCK_AT(AT_FDCWD, in(part)), 0755) || tpck_layer_follow.stat(TPCK_AT(AT_FDCWD, in(part)), &found, 0) ||
		    !S_ISDIR(found.st_mode))
			_exit(84);
		if (tpck_layer_follow.rename(TPCK_AT(AT_FDCWD, in(part)), TPCK_AT(AT_FDCWD, in(whole)), 0) ||
		    tpck_layer_follow.stat(TPCK_AT(AT_FDCWD, in(whole)), &found, 0) || !S_ISDIR(found.st_mode))
			_exit(85);
		if (i && tpck_layer_follow.unlink(TPCK_AT(AT_FDCWD, in(old)), AT_REMOVEDIR))
			_exit(86);
	}
	list = opendir(scratch);
	while (list && readdir(list))
		left++;
	_exit(left < 50 ? 0 : 87);
}

static void each_save(void)
{
	int status = in_child(each_save_run, 3000);

	printf("# status %d\n", status);
	tap_ok(status == 0, "a program that has made and removed thousands of folders goes on, and takes memory for those that are there", "");
}

static void numbered(void)
{
	tap_ok(in_child(numbered_run, 2) == 0, "files are called after the process, some made before it has met a device", "");
	for (int boundary = 4; boundary <= 6; boundary += 2) {
		int status = in_child(numbered_run, boundary);

		printf("# status %d\n", status);
		tap_ok(status == 0, "another process goes on, sees them by its own number, and leaves none that the one before made", "");
	}
}

static int remove_entry(const char *path, const struct stat *found, int flag, struct FTW *where)
{
	(void)found;
	(void)flag;
	(void)where;
	return remove(path);
}

/* The program with its boundary behind so many parts, and the device behind so many of these; 0: at once. */
static void judge(int boundary, int parts)
{
	char *folder_made = tap_folder("/tmp"), path[400];

	early = parts;

	snprintf(base, sizeof base, "%s", folder_made);
	snprintf(real_root, sizeof real_root, "%s/tree", base);
	snprintf(root, sizeof root, "%s/home", base);
	snprintf(log_folder, sizeof log_folder, "%s/log", base);
	snprintf(keep, sizeof keep, "%s/keep", base);
	snprintf(scratch, sizeof scratch, "%s/scratch", base);
	if (mkdir(real_root, 0755) || mkdir(log_folder, 0700) || mkdir(keep, 0700) || mkdir(strcat(keep, "/program"), 0700) || mkdir(scratch, 0700) ||
	    symlink(real_root, root))
		_exit(99);
	write_text(in("data"), "data of before");
	write_text(in("log"), "log of before\n");
	write_text(in("first"), "first of before");
	write_text(in("second"), "second of before");
	(void)!symlink(".", in("by"));
	write_text(in("only"), "only once");
	mkdir(in("held"), 0755);
	write_text(in("held/deep"), "deep");
	(void)!symlink("held", in("turned"));
	(void)!symlink("base", in("ready"));
	write_text(in("note"), "note of before\n");
	write_text(in("behind"), "behind");
	mkdir(in("base"), 0755);
	mkdir(in("tmp"), 0755);
	setenv("TMPDIR", in("tmp"), 1);
	mkdir(in("caches"), 0755);
	setenv("TRITON_CACHE_DIR", in("caches"), 1);
	mkdir(in("old"), 0755);
	mkdir(in("old/inner"), 0755);
	write_text(in("old/inner/deep"), "deep");
	write_text(in("old/file"), "file");
	snprintf(path, sizeof path, "%s/old/file.link", root);
	(void)!symlink("file", path);
	(void)!symlink("old/inner", in("pointer"));
	(void)!symlink("old", in("fixed"));
	tap_ok(in_child(record, boundary) == 0, "recorded", "");
	tap_ok(in_child(run_forward, boundary) == 0, "run forward", "");
	snprintf(path, sizeof path, "%s/why", base);
	tap_ok(*text_of(path) == '\0', "nothing differs", text_of(path));
	tap_ok(same_text("said", "said.forward", "said"), "each call said what it said the first time", "");
	printf("# boundary behind part %d, device behind part %d\n", boundary, parts);
	tap_ok(same_text("want", "got", "tree"), "the tree is what it was at the boundary", "");
	if (boundary == 1 && !parts) {
		ranks();
		file_times();
		numbered();
		each_save();
	}
	nftw(base, remove_entry, 16, FTW_PHYS | FTW_DEPTH);
}

/* A user's own files of the names that are taken beside a path stay what they are. */
static void beside(void)
{
	char folder[] = "/tmp/tpck-beside.XXXXXX", path[64], own[80], link[80], name[96] = "", text[16] = "";
	int fd, made;

	if (!mkdtemp(folder))
		exit(99);
	snprintf(path, sizeof path, "%s/x", folder);
	snprintf(own, sizeof own, "%s.transpckpt.0", path);
	snprintf(link, sizeof link, "%s.transpckpt.1", path);
	fd = open(own, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, "mine", 4) != 4 || symlink(own, link))
		exit(99);
	made = tpck_overlay_beside(path, name, sizeof name);
	tap_ok(made >= 0 && strcmp(name, own) != 0 && strcmp(name, link) != 0 && write(made, "ours", 4) == 4 && pread(fd, text, 15, 0) == 4 &&
		       strcmp(text, "mine") == 0,
	       "what is put beside a file takes no name that there is", name);
	close(made);
	close(fd);
	nftw(folder, remove_entry, 16, FTW_PHYS | FTW_DEPTH);
}

/* A file that a program reads and writes over before there is a place for versions. */
static char early_folder[] = "/tmp/tpck-early.XXXXXX";

static void overwrite_early(int unused)
{
	struct tpck_log *log = tpck_log_new(1 << 24);
	char path[64], place[64];
	int fd;

	(void)unused;
	snprintf(path, sizeof path, "%s/clock", early_folder);
	snprintf(place, sizeof place, "%s/keep", early_folder);
	if (mkdir(place, 0700))
		_exit(89);
	strcat(place, "/program");
	tpck_follow_record(log, "", 0);
	fd = tpck_layer_follow.open(TPCK_AT(AT_FDCWD, path), O_RDWR, 0);
	if (fd < 0 || pwrite(fd, "new time", 8, 0) != 8 || close(fd) || mkdir(place, 0700))
		_exit(90);
	tpck_follow_record(log, place, 1);
}

static int versions;

static int find_version(const char *path, const struct stat *found, int flag, struct FTW *at)
{
	char text[16] = "";
	int fd = flag == FTW_F && found->st_size == 8 && strstr(path, "/keep/") ? open(path, O_RDONLY) : -1;

	(void)at;
	if (fd >= 0) {
		versions += read(fd, text, 8) == 8 && strcmp(text, "old time") == 0 && found->st_mtim.tv_sec == 1000000000;
		close(fd);
	}
	return 0;
}

static void overwritten_early(void)
{
	char path[64];
	int fd;

	if (!mkdtemp(early_folder))
		exit(99);
	snprintf(path, sizeof path, "%s/clock", early_folder);
	fd = open(path, O_WRONLY | O_CREAT, 0644);
	if (fd < 0 || write(fd, "old time", 8) != 8 || futimens(fd, (const struct timespec[2]){{1000000000, 0}, {1000000000, 0}}) || close(fd))
		exit(99);
	tap_ok(in_child(overwrite_early, 0) == 0, "a file is read and written over before there is a place for versions", "");
	nftw(early_folder, find_version, 16, FTW_PHYS);
	tap_ok(versions == 1, "it is kept all the same", "");
	nftw(early_folder, remove_entry, 16, FTW_PHYS | FTW_DEPTH);
}

/* A store whose folder above others may write to: between the program's start and its first file they put a link to another folder of its
 * user's in the job's place. */
static char swapped[] = "/tmp/tpck-swapped.XXXXXX";

static void swap_and_touch(int swap)
{
	struct tpck_log *log = tpck_log_new(1 << 24);
	char job[64], away[64], place[80], path[64];
	int fd;

	snprintf(job, sizeof job, "%s/job", swapped);
	snprintf(away, sizeof away, "%s/mine", swapped);
	snprintf(place, sizeof place, "%s/keep", job);
	(void)(mkdir(job, 0700) || mkdir(place, 0700));
	strcat(place, "/program");
	(void)mkdir(place, 0700);
	tpck_follow_record(log, "", 0);
	tpck_follow_record(log, place, 1);
	if (swap && (rename(job, away) || symlink(away, job)))
		_exit(90);
	snprintf(path, sizeof path, "%s/old%d", swapped, swap);
	fd = tpck_layer_follow.open(TPCK_AT(AT_FDCWD, path), O_RDWR, 0);
	if (fd < 0 || write(fd, "new", 3) != 3 || close(fd))
		_exit(91);
	snprintf(path, sizeof path, "%s/new%d", swapped, swap);
	fd = tpck_layer_follow.open(TPCK_AT(AT_FDCWD, path), O_WRONLY | O_CREAT, 0644);
	if (fd < 0 || close(fd))
		_exit(92);
}

static int kept_files(const char *job)
{
	char path[100];
	struct dirent *entry;
	DIR *list;
	int count = 0;

	snprintf(path, sizeof path, "%s/%s/keep/program", swapped, job);
	list = opendir(path);
	while (list && (entry = readdir(list)))
		count += entry->d_name[0] != '.';
	if (list)
		closedir(list);
	return count;
}

static void kept_elsewhere(void)
{
	char path[64];
	int before = 0, fd;

	if (!mkdtemp(swapped))
		exit(99);
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof path, "%s/old%d", swapped, i);
		fd = open(path, O_WRONLY | O_CREAT, 0644);
		if (fd < 0 || write(fd, "old", 3) != 3 || futimens(fd, (const struct timespec[2]){{1000000000, 0}, {1000000000, 0}}) || close(fd))
			exit(99);
	}
	tap_ok(in_child(swap_and_touch, 0) == 0 && (before = kept_files("job")) >= 3, "a version and lists are kept in the job's folder of the store", "");
	tap_ok(in_child(swap_and_touch, 1) == 0 && kept_files("mine") == before, "and nowhere else, where a link has come to its place", "");
	nftw(swapped, remove_entry, 16, FTW_PHYS | FTW_DEPTH);
}

int main(void)
{
	umask(022);
	beside();
	overwritten_early();
	kept_elsewhere();
	for (int boundary = 1; boundary <= 8; boundary++)
		for (int parts = 0; parts <= boundary; parts += boundary > 2 ? boundary / 2 : 1)
			judge(boundary, parts);
	return tap_done();
}
