/* SPDX-License-Identifier: Apache-2.0 */
/* Calls with pointers that nobody can read, each in a child of its own: one line says what it gave, or that it was a fault.
 * pointers [pending FILE | device FILE]: the same while FILE, which is open for writing, is pending; in a program that has met a
 * device, which its children have not, so that the calls are its own. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

enum { PAGE = 4096, NR_OPENAT2 = 437, NR_FACCESSAT2 = 439 };
static const char *good = "there";
static int written = -1; /* a descriptor of `good`, for writing */
static int source = -1;  /* one of another file, for reading */

/* ---- the calls: `p` is the bad pointer ------------------------------------------------------------- */

#define CALL(name, ...)                    \
	static long call_##name(void *p)   \
	{                                  \
		return (long)(__VA_ARGS__); \
	}
#define POINTER(name, ...)                        \
	static long call_##name(void *p)          \
	{                                         \
		return (__VA_ARGS__) ? 0 : -1;    \
	}

CALL(open, open(p, O_RDONLY))
CALL(open_write, open(p, O_RDWR))
CALL(open_create, open(p, O_WRONLY | O_CREAT | O_TRUNC, 0600))
CALL(open_folder, open(p, O_RDONLY | O_DIRECTORY))
CALL(open_path, open(p, O_PATH | O_NOFOLLOW))
CALL(open_unnamed, open(p, O_TMPFILE | O_RDWR, 0600))
CALL(open64, open64(p, O_RDONLY))
CALL(openat, openat(AT_FDCWD, p, O_RDONLY))
CALL(openat_none, openat(-7, p, O_RDONLY))
CALL(openat64, openat64(AT_FDCWD, p, O_CREAT | O_RDWR, 0600))
CALL(creat, creat(p, 0600))
CALL(creat64, creat64(p, 0600))
POINTER(fopen, fopen(p, "r"))
POINTER(fopen_write, fopen(p, "w"))
POINTER(fopen_mode, fopen(good, p))
POINTER(fopen64, fopen64(p, "a+"))
POINTER(freopen, freopen(p, "r", stdin))
POINTER(freopen64, freopen64(p, "w", stdin))
CALL(mkstemp, mkstemp(p))
CALL(mkostemps, mkostemps(p, 0, 0))
POINTER(mkdtemp, mkdtemp(p))
CALL(stat, stat(p, &(struct stat){0}))
CALL(stat_result, stat(good, p))
CALL(stat64, stat64(p, &(struct stat64){0}))
CALL(lstat, lstat(p, &(struct stat){0}))
CALL(lstat_result, lstat(good, p))
CALL(lstat64, lstat64(p, &(struct stat64){0}))
CALL(fstat, fstat(written, p))
CALL(fstatat, fstatat(AT_FDCWD, p, &(struct stat){0}, 0))
CALL(fstatat_empty, fstatat(written, p, &(struct stat){0}, AT_EMPTY_PATH))
CALL(fstatat_here, fstatat(AT_FDCWD, p, &(struct stat){0}, AT_EMPTY_PATH))
CALL(fstatat_flags, fstatat(AT_FDCWD, p, &(struct stat){0}, 0x40000000))
CALL(fstatat64, fstatat64(AT_FDCWD, p, &(struct stat64){0}, AT_SYMLINK_NOFOLLOW))
CALL(statx, statx(AT_FDCWD, p, 0, STATX_SIZE, &(struct statx){0}))
CALL(statx_empty, statx(written, p, AT_EMPTY_PATH, STATX_SIZE, &(struct statx){0}))
CALL(statx_here, statx(AT_FDCWD, p, AT_EMPTY_PATH, STATX_SIZE, &(struct statx){0}))
CALL(faccessat_here, faccessat(AT_FDCWD, p, R_OK, AT_EMPTY_PATH))
CALL(statx_result, statx(AT_FDCWD, good, 0, STATX_SIZE, p))
CALL(access, access(p, R_OK))
CALL(access_mode, access(p, 077))
CALL(faccessat, faccessat(AT_FDCWD, p, W_OK, 0))
CALL(faccessat_flags, faccessat(AT_FDCWD, p, W_OK, AT_EACCESS))
CALL(euidaccess, euidaccess(p, R_OK))
CALL(truncate, truncate(p, 10))
CALL(truncate64, truncate64(p, 10))
CALL(truncate_negative, truncate(p, -1))
CALL(rename, rename(p, "new"))
CALL(rename_to, rename(good, p))
CALL(rename_both, rename(p, p))
CALL(renameat, renameat(AT_FDCWD, p, AT_FDCWD, "new"))
CALL(renameat_to, renameat(AT_FDCWD, good, AT_FDCWD, p))
CALL(renameat2, renameat2(AT_FDCWD, p, AT_FDCWD, "new", RENAME_NOREPLACE))
CALL(renameat2_to, renameat2(AT_FDCWD, good, AT_FDCWD, p, RENAME_EXCHANGE))
CALL(link, link(p, "new"))
CALL(link_to, link(good, p))
CALL(linkat, linkat(AT_FDCWD, p, AT_FDCWD, "new", 0))
CALL(linkat_to, linkat(AT_FDCWD, good, AT_FDCWD, p, AT_SYMLINK_FOLLOW))
CALL(linkat_empty, linkat(written, p, AT_FDCWD, "new", AT_EMPTY_PATH))
CALL(symlink, symlink(p, "new"))
CALL(symlink_to, symlink(good, p))
CALL(symlinkat, symlinkat(p, AT_FDCWD, "new"))
CALL(symlinkat_to, symlinkat(good, AT_FDCWD, p))
CALL(readlink, readlink(p, (char[9]){0}, 9))
CALL(readlink_result, readlink("link", p, 9))
CALL(readlinkat, readlinkat(AT_FDCWD, p, (char[9]){0}, 9))
CALL(unlink, unlink(p))
CALL(unlinkat, unlinkat(AT_FDCWD, p, 0))
CALL(unlinkat_folder, unlinkat(AT_FDCWD, p, AT_REMOVEDIR))
CALL(rmdir, rmdir(p))
CALL(remove, remove(p))
CALL(mkdir, mkdir(p, 0700))
CALL(mkdirat, mkdirat(AT_FDCWD, p, 0700))
CALL(mkfifo, mkfifo(p, 0600))
CALL(mkfifoat, mkfifoat(AT_FDCWD, p, 0600))
CALL(mknod, mknod(p, S_IFREG | 0600, 0))
CALL(mknodat, mknodat(AT_FDCWD, p, S_IFIFO | 0600, 0))
CALL(chmod, chmod(p, 0600))
CALL(chmod_program, chmod(p, 0700))
CALL(fchmodat, fchmodat(AT_FDCWD, p, 0600, 0))
CALL(fchmodat_flags, fchmodat(AT_FDCWD, p, 0600, AT_SYMLINK_NOFOLLOW))
CALL(chown, chown(p, -1, -1))
CALL(lchown, lchown(p, -1, -1))
CALL(fchownat, fchownat(AT_FDCWD, p, -1, -1, 0))
CALL(fchownat_empty, fchownat(written, p, -1, -1, AT_EMPTY_PATH))
CALL(utime, utime(p, NULL))
CALL(utime_times, utime(good, p))
CALL(utimes, utimes(p, NULL))
CALL(utimes_times, utimes(good, p))
CALL(lutimes, lutimes(p, NULL))
CALL(utimensat, utimensat(AT_FDCWD, p, NULL, 0))
CALL(utimensat_times, utimensat(AT_FDCWD, good, p, 0))
CALL(utimensat_nothing, utimensat(AT_FDCWD, p, (struct timespec[2]){{0, UTIME_OMIT}, {0, UTIME_OMIT}}, 0))
CALL(futimesat, futimesat(AT_FDCWD, p, NULL))
CALL(listxattr, listxattr(p, NULL, 0))
CALL(llistxattr, llistxattr(p, NULL, 0))
CALL(getxattr, getxattr(p, "user.x", NULL, 0))
CALL(getxattr_name, getxattr(good, p, NULL, 0))
CALL(lgetxattr, lgetxattr(p, "user.x", NULL, 0))
CALL(setxattr, setxattr(p, "user.x", "y", 1, 0))
CALL(setxattr_name, setxattr(good, p, "y", 1, 0))
CALL(setxattr_value, setxattr(good, "user.x", p, 1, 0))
CALL(lsetxattr, lsetxattr(p, "user.x", "y", 1, 0))
CALL(removexattr, removexattr(p, "user.x"))
CALL(lremovexattr, lremovexattr(p, "user.x"))
CALL(statfs, statfs(p, &(struct statfs){0}))
CALL(statfs_result, statfs(good, p))
CALL(statfs64, statfs64(p, &(struct statfs64){0}))
CALL(statvfs, statvfs(p, &(struct statvfs){0}))
CALL(statvfs64, statvfs64(p, &(struct statvfs64){0}))
CALL(pathconf, pathconf(p, _PC_LINK_MAX))
CALL(pathconf_name, pathconf(p, _PC_NAME_MAX))
CALL(chdir, chdir(p))
CALL(chroot, chroot(p))
POINTER(opendir, opendir(p))
POINTER(realpath, realpath(p, NULL))
CALL(scandir, scandir(p, &(struct dirent **){NULL}, NULL, NULL))
CALL(scandir64, scandir64(p, &(struct dirent64 **){NULL}, NULL, NULL))
CALL(glob, glob(p, 0, NULL, &(glob_t){0}))
static int visit(const char *path, const struct stat *found, int flag)
{
	(void)path, (void)found, (void)flag;
	return 0;
}
CALL(ftw, ftw(p, visit, 5))
CALL(execve, execve(p, (char *[]){"x", NULL}, (char *[]){NULL}))
CALL(execve_arguments, execve("/bin/true", p, (char *[]){NULL}))
CALL(execve_variables, execve("/bin/true", (char *[]){"x", NULL}, p))
CALL(execv, execv(p, (char *[]){"x", NULL}))
CALL(execvp, execvp(p, (char *[]){"x", NULL}))
CALL(execl, execl(p, "x", (char *)NULL))
static long call_fexecve(void *p)
{
	int fd = open("/bin/true", O_RDONLY | O_CLOEXEC);

	return fexecve(fd, p, (char *[]){NULL});
}
CALL(posix_spawn, posix_spawn(&(pid_t){0}, p, NULL, NULL, (char *[]){"x", NULL}, (char *[]){NULL}))
CALL(bind, bind(socket(AF_UNIX, SOCK_STREAM, 0), p, sizeof(struct sockaddr_un)))
CALL(bind_short, bind(socket(AF_UNIX, SOCK_STREAM, 0), p, 20))
CALL(connect, connect(socket(AF_UNIX, SOCK_STREAM, 0), p, sizeof(struct sockaddr_un)))
CALL(write, write(written, p, 200))
CALL(write_much, write(written, p, 100000))
CALL(pwrite, pwrite(written, p, 200, 0))
CALL(writev, writev(written, p, 2))
CALL(writev_many, writev(written, p, 2000))
CALL(writev_buffer, writev(written, (struct iovec[]){{p, 200}, {p, 200}}, 2))
CALL(pwritev, pwritev(written, p, 2, 0))
CALL(pwritev64, pwritev64(written, p, 1, 0))
CALL(pwritev2, pwritev2(written, p, 1, 0, 0))
CALL(read, read(source, p, 20))
CALL(readv, readv(source, p, 1))
CALL(copy_file_range, copy_file_range(source, p, written, NULL, 4, 0))
CALL(copy_file_range_to, copy_file_range(source, NULL, written, p, 4, 0))
CALL(sendfile, sendfile(written, source, p, 4))
CALL(sendfile64, sendfile64(written, source, p, 4))
CALL(fcntl_lock, fcntl(written, F_GETLK, p))
CALL(getrandom, getrandom(p, 8, 0))
CALL(getentropy, getentropy(p, 8))
CALL(s_open, syscall(SYS_open, p, O_RDONLY))
CALL(s_openat, syscall(SYS_openat, AT_FDCWD, p, O_RDONLY))
CALL(s_openat2, syscall(NR_OPENAT2, AT_FDCWD, p, &(uint64_t[3]){0}, 24))
CALL(s_openat2_how, syscall(NR_OPENAT2, AT_FDCWD, good, p, 24))
CALL(s_stat, syscall(SYS_stat, p, &(struct stat){0}))
CALL(s_newfstatat, syscall(SYS_newfstatat, AT_FDCWD, p, &(struct stat){0}, 0))
CALL(s_access, syscall(SYS_access, p, 0))
CALL(s_faccessat2, syscall(NR_FACCESSAT2, AT_FDCWD, p, 0, 0))
CALL(s_rename, syscall(SYS_rename, p, good))
CALL(s_unlink, syscall(SYS_unlink, p))
CALL(s_truncate, syscall(SYS_truncate, p, 4))
CALL(s_utimensat, syscall(SYS_utimensat, AT_FDCWD, p, NULL, 0))
CALL(s_utimensat_fd, syscall(SYS_utimensat, written, p, NULL, 0))
CALL(s_execve, syscall(SYS_execve, p, NULL, NULL))
CALL(s_mkdir, syscall(SYS_mkdir, p, 0700))
CALL(s_chdir, syscall(SYS_chdir, p))

#define ROW(name) {#name, call_##name}
static const struct {
	const char *name;
	long (*call)(void *);
} calls[] = {
	ROW(open), ROW(open_write), ROW(open_create), ROW(open_folder), ROW(open_path), ROW(open_unnamed), ROW(open64), ROW(openat),
	ROW(openat_none), ROW(openat64), ROW(creat), ROW(creat64), ROW(fopen), ROW(fopen_write), ROW(fopen_mode), ROW(fopen64), ROW(freopen),
	ROW(freopen64), ROW(mkstemp), ROW(mkostemps), ROW(mkdtemp), ROW(stat), ROW(stat_result), ROW(stat64), ROW(lstat), ROW(lstat_result),
	ROW(lstat64), ROW(fstat), ROW(fstatat), ROW(fstatat_empty), ROW(fstatat_here), ROW(fstatat_flags), ROW(fstatat64), ROW(statx), ROW(statx_empty),
	ROW(statx_here), ROW(faccessat_here), ROW(statx_result), ROW(access), ROW(access_mode), ROW(faccessat), ROW(faccessat_flags), ROW(euidaccess), ROW(truncate), ROW(truncate64),
	ROW(truncate_negative), ROW(rename), ROW(rename_to), ROW(rename_both), ROW(renameat), ROW(renameat_to), ROW(renameat2),
	ROW(renameat2_to), ROW(link), ROW(link_to), ROW(linkat), ROW(linkat_to), ROW(linkat_empty), ROW(symlink), ROW(symlink_to),
	ROW(symlinkat), ROW(symlinkat_to), ROW(readlink), ROW(readlink_result), ROW(readlinkat), ROW(unlink), ROW(unlinkat),
	ROW(unlinkat_folder), ROW(rmdir), ROW(remove), ROW(mkdir), ROW(mkdirat), ROW(mkfifo), ROW(mkfifoat), ROW(mknod), ROW(mknodat),
	ROW(chmod), ROW(chmod_program), ROW(fchmodat), ROW(fchmodat_flags), ROW(chown), ROW(lchown), ROW(fchownat), ROW(fchownat_empty),
	ROW(utime), ROW(utime_times), ROW(utimes), ROW(utimes_times), ROW(lutimes), ROW(utimensat), ROW(utimensat_times),
	ROW(utimensat_nothing), ROW(futimesat), ROW(listxattr), ROW(llistxattr), ROW(getxattr), ROW(getxattr_name), ROW(lgetxattr),
	ROW(setxattr), ROW(setxattr_name), ROW(setxattr_value), ROW(lsetxattr), ROW(removexattr), ROW(lremovexattr), ROW(statfs),
	ROW(statfs_result), ROW(statfs64), ROW(statvfs), ROW(statvfs64), ROW(pathconf), ROW(pathconf_name), ROW(chdir), ROW(chroot), ROW(opendir),
	ROW(realpath), ROW(scandir), ROW(scandir64), ROW(glob), ROW(ftw), ROW(execve), ROW(execve_arguments), ROW(execve_variables), ROW(execv),
	ROW(execvp), ROW(execl), ROW(fexecve), ROW(posix_spawn), ROW(bind), ROW(bind_short), ROW(connect), ROW(write), ROW(write_much), ROW(pwrite),
	ROW(writev), ROW(writev_many), ROW(writev_buffer), ROW(pwritev), ROW(pwritev64), ROW(pwritev2), ROW(read), ROW(readv), ROW(copy_file_range),
	ROW(copy_file_range_to), ROW(sendfile), ROW(sendfile64), ROW(fcntl_lock), ROW(getrandom), ROW(getentropy), ROW(s_open), ROW(s_openat),
	ROW(s_openat2), ROW(s_openat2_how), ROW(s_stat), ROW(s_newfstatat), ROW(s_access), ROW(s_faccessat2), ROW(s_rename), ROW(s_unlink),
	ROW(s_truncate), ROW(s_utimensat), ROW(s_utimensat_fd), ROW(s_execve), ROW(s_mkdir), ROW(s_chdir),
};

/* ---- the pointers ---------------------------------------------------------------------------------- */

/* Texts that are cut off: a call that writes there is not to change what the next one reads. */
static struct {
	char *text, *copy;
	size_t bytes;
} cuts[8];
static unsigned cuts_count;

static void mend_cuts(void)
{
	for (unsigned i = 0; i < cuts_count; i++)
		memcpy(cuts[i].text, cuts[i].copy, cuts[i].bytes);
}

/* So many bytes, behind which nothing can be read. */
static char *letters(size_t bytes, const char *first)
{
	size_t pages = (bytes + PAGE - 1) / PAGE;
	char *at = mmap(NULL, (pages + 1) * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *text = at + pages * PAGE - bytes;

	/* Not unmapped: something else might get the place. */
	mprotect(at + pages * PAGE, PAGE, PROT_NONE);
	memset(text, 0xe1, bytes); /* no letter, so that what reads a number there reads a negative one */
	memcpy(text, first, strlen(first));
	cuts[cuts_count].text = text;
	cuts[cuts_count].copy = memcpy(malloc(bytes), text, bytes);
	cuts[cuts_count++].bytes = bytes;
	return text;
}

static char *unreadable(void)
{
	char *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	strcpy(at + 100, good);
	mprotect(at, PAGE, PROT_NONE);
	return at + 100;
}

struct outcome {
	long result;
	int error;
	bool done;
};

static void give(long (*call)(void *), const char *what, void *pointer, struct outcome *outcome)
{
	if (strcmp(what, "unmapped") == 0)
		munmap((char *)pointer - 100, PAGE);
	mend_cuts();
	lseek(source, 0, SEEK_SET);
	errno = 77;
	outcome->result = call(pointer);
	outcome->error = errno;
	outcome->done = true;
}

static bool forks = true;
static sigjmp_buf before;
static void on_fault(int signal)
{
	siglongjmp(before, signal);
}

/* Without a child: not what would end this one if it worked, or leaves a stream that is closed. */
static int here(const char *name, long (*call)(void *), const char *what, void *pointer, struct outcome *outcome)
{
	int fault;

	if (strstr(name, "exec") || strstr(name, "freopen") || strcmp(name, "chroot") == 0) {
		outcome->error = 77;
		outcome->done = true;
		return 0;
	}
	fault = sigsetjmp(before, 1);
	if (!fault)
		give(call, what, pointer, outcome);
	return fault;
}

static void one(const char *name, long (*call)(void *), const char *what, void *pointer, struct outcome *outcome)
{
	int status = 0;
	pid_t child;

	*outcome = (struct outcome){.done = false};
	child = forks ? fork() : 0;
	if (!forks) {
		status = here(name, call, what, pointer, outcome);
	} else if (!child) {
		alarm(20);
		give(call, what, pointer, outcome);
		_exit(0);
	} else {
		waitpid(child, &status, 0);
	}
	if (!outcome->done && WIFSIGNALED(status))
		printf("%s %s: signal %d\n", name, what, WTERMSIG(status));
	else if (!outcome->done)
		printf("%s %s: status %d\n", name, what, WEXITSTATUS(status));
	else if (outcome->result >= 0 && outcome->error == 77)
		printf("%s %s: done\n", name, what);
	else
		printf("%s %s: %ld errno %d\n", name, what, outcome->result > 0 ? 1 : outcome->result, outcome->error);
}

static void meet_device(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
	int (*retain)(void **, int) = (int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
	int (*current)(void *) = (int (*)(void *))dlsym(driver, "cuCtxSetCurrent");
	int (*allocate)(void **, size_t) = (int (*)(void **, size_t))dlsym(driver, "cuMemAlloc_v2");
	void *context = NULL, *memory = NULL;

	if (init(0) || retain(&context, 0) || current(context) || allocate(&memory, 1 << 20))
		exit(9);
}

int main(int count, char **argument)
{
	struct outcome *outcome = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	const struct {
		const char *name;
		char *pointer;
	} pointers[] = {
		{"NULL", NULL}, {"1", (char *)1}, {"last", (char *)-1}, {"kernel", (char *)0xffff800000001000}, {"hole", (char *)0x8000000000000000},
		{"unmapped", unreadable()}, {"unreadable", unreadable()}, {"cut", letters(3, "")}, {"cut path", letters(20, "/tmp/")},
		{"cut long", letters(PATH_MAX - 1, "./")}, {"cut too long", letters(PATH_MAX, "./")}, {"cut pages", letters(5 * PAGE, "/")},
	};

	if (count > 2 && strcmp(argument[1], "device") == 0) {
		meet_device();
		forks = false;
		sigaction(SIGSEGV, &(struct sigaction){.sa_handler = on_fault, .sa_flags = SA_NODEFER}, NULL);
	}
	if (count > 2)
		good = argument[2];
	setvbuf(stdout, NULL, _IOLBF, 0);
	source = open("source", O_RDWR | O_CREAT, 0600);
	(void)!write(source, "source of bytes", 15);
	written = open(good, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	(void)!write(written, "bytes", 5);
	(void)!symlink("nowhere", "link");
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
		for (size_t p = 0; p < sizeof pointers / sizeof *pointers; p++)
			one(calls[i].name, calls[i].call, pointers[p].name, pointers[p].pointer, outcome);
	close(written);
	return 0;
}
