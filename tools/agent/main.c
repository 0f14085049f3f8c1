/* SPDX-License-Identifier: Apache-2.0 */
/* transpckptd: the agent of one user and job on one node. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/accord/joint_launches.h"
#include "agent/copies/copies.h"
#include "agent/durable/drain.h"
#include "agent/durable/flush.h"
#include "agent/durable/packer.h"
#include "agent/durable/stasher.h"
#include "agent/files/publisher.h"
#include "agent/hello/hello.h"
#include "agent/loop/trouble.h"
#include "agent/peers/peers.h"
#include "agent/salvage/salvage.h"
#include "agent/session/clerk.h"
#include "agent/session/events.h"
#include "agent/session/own_known.h"
#include "agent/session/prepare.h"
#include "agent/session/sessions.h"
#include "agent/session/stall.h"
#include "agent/session/watermark.h"
#include "agent/spares/spares.h"
#include "agent/twins/twin_sets.h"
#include "runtime/base/clock.h"
#include "runtime/base/door.h"
#include "runtime/base/log.h"
#include "runtime/base/tier_settings.h"
#include "runtime/store/file.h"
#include "tools/agent/leaving.h"
#include "tools/agent/status.h"

extern char **environ;

/* How long a new agent waits for one that is about to end. */
#define LOCK_WAIT_NS 10000000000ull
#define TAKE_OVER_NS 30000000000ull
#define TELL_AGAIN_NS 1000000000ull
enum { LOG_KEEP = 256 << 10, FINISH_US = 30000000, GATHER_US = 2000000 };

static struct agent agent;

/* All that the loop turns (loop.h). What a part needs to begin stands below it; a part that is considered, or stopped, later than another stands below that. */
static const struct loop_part *const parts[] = {
	&clients_loop,
	&copies_loop,
	&peers_loop,
	&copies_found_loop,
	&twins_loop,
	&spares_loop,
	&adoption_loop,
	&hello_loop,
	&own_loop,
	&clerk_loop,
	&accord_loop,
	&salvage_loop,
	&live_loop,
	&flush_loop,
	&pack_loop,
	&stash_loop,
	&drain_loop,
	&watermark_loop,
	&history_loop,
	&copies_state_loop,
	&peers_state_loop,
	&stall_loop,
	&prepare_loop,
	&endings_loop,
	&files_loop,
	&leaving_loop,
};

static const struct session_beyond beyond = {
	.hello = hello_begin,
	.adopt = hello_adopt,
	.look = copies_look,
	.meet = peers_meet_for,
	.committed = copies_committed,
	.ended = copies_ended,
	.forget = stash_remove,
	.query = status_answer,
};
/* Who hears what happens between nodes. */
static const struct peers_hearer *const hearers[] = {&copies_hears, &accord_hears, &salvage_hears, &twins_hears, &spares_hears, &leaving_hears};
static int report_fd = -1; /* the starter waits here for "" (ready) or a line */

static void usage(FILE *to)
{
	fputs("usage: transpckptd --job JOB [--foreground]\n"
	      "The agent that keeps, verifies and stores the snapshots of JOB's processes on this node.\n"
	      "It is started by the preloaded library; settings are taken from TRANSPCKPT_*.\n",
	      to);
}

/* ---- one agent only ----------------------------------------------------------------------- */

/* The process that listens; 0: none does, -1: one of which no number is known here. */
static pid_t listener(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int folder = open(home.folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct ucred other = {0};
	socklen_t size = sizeof other;
	pid_t pid = 0;

	snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/agent.sock", folder);
	/* A queue that is full is somebody's. */
	if (fd >= 0 && folder >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address))
		pid = errno == EAGAIN ? -1 : 0;
	else if (fd >= 0 && folder >= 0)
		pid = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &size) || !other.pid ? -1 : other.pid;
	if (fd >= 0)
		close(fd);
	if (folder >= 0)
		close(folder);
	return pid;
}

static void tell_to_end(void)
{
	pid_t pid = listener();

	if (pid > 0 && !kill(pid, SIGTERM))
		fprintf(stderr, "transpckptd: process %d, which was the job's agent here, is told to end: this one goes on\n", (int)pid);
}

/* Whether the locked file is still the one at the path: an agent that leaves takes it along. */
static bool lock_is_current(int fd, const char *path)
{
	struct stat held, there;

	return fstat(fd, &held) == 0 && stat(path, &there) == 0 && held.st_ino == there.st_ino &&
	       held.st_dev == there.st_dev;
}

static bool is_file(int fd)
{
	struct stat found;

	return fstat(fd, &found) == 0 && S_ISREG(found.st_mode);
}

/* The lock's descriptor, or -EAGAIN when another agent has it. */
static int try_lock(struct tpck_error *err)
{
	char path[TPCK_PATH_MAX];
	int fd, rc = tpck_folder_make(home.folder, err);

	if (rc)
		return rc;
	tpck_path_join(path, sizeof path, home.folder, "agent.lock");
	fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (fd < 0 && errno != ENOENT)
		return tpck_error_set(err, errno, "opening %s", path);
	if (fd >= 0 && !is_file(fd)) {
		close(fd);
		return tpck_error_set(err, EINVAL, "opening %s, which is no file: remove it", path);
	}
	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && lock_is_current(fd, path)) {
		/* For people; the lock is what counts. */
		if (ftruncate(fd, 0) == 0)
			dprintf(fd, "%d\n", (int)getpid());
		return fd;
	}
	if (fd >= 0)
		close(fd);
	return -EAGAIN;
}

/* The same, waiting for one that is about to end; -EALREADY when another agent serves the job. */
static int take_lock(struct tpck_error *err)
{
	uint64_t until = tpck_clock_monotonic_ns() + LOCK_WAIT_NS;

	for (;;) {
		int lock = try_lock(err);

		if (lock != -EAGAIN)
			return lock;
		if (listener())
			return -EALREADY;
		if (tpck_clock_monotonic_ns() > until)
			return tpck_error_set(err, EBUSY, "waiting for the agent that holds %s/agent.lock", home.folder);
		usleep(20000);
	}
}

static bool all_own(DIR *list)
{
	struct dirent *entry;
	struct stat found;

	while ((entry = readdir(list)))
		if (strcmp(entry->d_name, "..") != 0 &&
		    (fstatat(dirfd(list), entry->d_name, &found, AT_SYMLINK_NOFOLLOW) || found.st_uid != geteuid()))
			return false;
	return true;
}

/* A tmpfs that has just been mounted lets all write to it, and has nothing in it. */
static void close_to_others(const char *path)
{
	int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *list = folder < 0 ? NULL : fdopendir(folder);
	struct stat found;

	if (list && fstat(folder, &found) == 0 && found.st_uid == geteuid() && found.st_mode & 077 && fchmod(folder, 0700) == 0 && !all_own(list))
		(void)fchmod(folder, found.st_mode & 07777);
	if (list)
		closedir(list);
	else if (folder >= 0)
		close(folder);
}

/* The memory tier's folder must be ours alone. */
static int check_memory_folder(const char *path, int flags, struct tpck_error *err)
{
	char parent[TPCK_PATH_MAX];
	int folder, rc;

	snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(path, '/') - path), path);
	rc = *parent ? tpck_folder_make(parent, err) : 0;
	if (rc)
		return rc;
	close_to_others(path);
	folder = tpck_door_open(AT_FDCWD, path, TPCK_DOOR_MAKE | flags);
	if (folder < 0)
		return tpck_door_refused(path, folder, "TRANSPCKPT_SHM", err);
	close(folder);
	return 0;
}

/* ---- coming and going --------------------------------------------------------------------- */

static void report(const char *line)
{
	if (report_fd >= 0) {
		(void)!write(report_fd, line, strlen(line));
		close(report_fd);
		report_fd = -1;
	} else if (line[0]) {
		fprintf(stderr, "transpckptd: %s\n", line);
	}
}

/* Waits in the starter for what the agent reports. */
static int await_report(int fd)
{
	char line[600];
	size_t used = 0;
	ssize_t got;

	while ((got = read(fd, line + used, sizeof line - 1 - used)) > 0)
		used += (size_t)got;
	line[used] = '\0';
	if (!used)
		return 0;
	if (strcmp(line, "ok") == 0)
		return 0;
	fprintf(stderr, "transpckptd: %s\n", line);
	return 1;
}

/* Returns in the agent only: its own session, no terminal, no parent. */
static void detach(void)
{
	int ends[2];
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC))
		_exit(1);
	pid = fork();
	if (pid < 0) {
		fprintf(stderr, "transpckptd: cannot fork: %s\n", strerror(errno));
		_exit(1);
	}
	if (pid > 0) {
		close(ends[1]);
		_exit(await_report(ends[0]));
	}
	close(ends[0]);
	report_fd = ends[1];
	setsid();
	pid = fork();
	if (pid < 0) {
		report("cannot fork");
		_exit(1);
	}
	if (pid > 0)
		_exit(0);
}

/* Standard input and output go nowhere; errors go where `doctor` and `show` find them. */
static void redirect(bool foreground)
{
	char path[TPCK_PATH_MAX];
	int fd = open("/dev/null", O_RDWR);

	if (fd >= 0) {
		dup2(fd, STDIN_FILENO);
		if (!foreground)
			dup2(fd, STDOUT_FILENO);
		if (fd > STDERR_FILENO)
			close(fd);
	}
	if (foreground)
		return;
	tpck_path_join(path, sizeof path, home.folder, "agent.log");
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (fd >= 0 && is_file(fd))
		dup2(fd, STDERR_FILENO);
	if (fd > STDERR_FILENO)
		close(fd);
}

/* The log would go with the memory tier; its end is kept in the store. */
static void keep_log(void)
{
	struct tpck_error err = {0};
	char path[TPCK_PATH_MAX], *text;
	size_t size;

	tpck_path_join(path, sizeof path, home.folder, "agent.log");
	if (tpck_file_read(path, 1 << 30, &text, &size, &err))
		return;
	if (size)
		(void)home.tier->operations->mark(home.tier, "agent.log",
						  size > LOG_KEEP ? text + size - LOG_KEEP : text, &err);
	free(text);
}

/* "SHM/.JOB.ended.PID", which is no job's name. */
static int ended_prefix(char *path, size_t size)
{
	const char *slash = strrchr(home.folder, '/');

	return snprintf(path, size, "%.*s/.%s.ended.", (int)(slash - home.folder), home.folder, slash + 1) < (int)size - 16
		       ? 0
		       : -ENAMETOOLONG;
}

/* Out of the way first: the next agent may begin in a folder of that name while this one is still removing. */
static void remove_memory(void)
{
	char away[TPCK_PATH_MAX];
	size_t used;

	if (ended_prefix(away, sizeof away))
		return;
	used = strlen(away);
	snprintf(away + used, sizeof away - used, "%d", (int)getpid());
	if (rename(home.folder, away) == 0)
		(void)tpck_folder_remove(away);
}

/* What an agent that was killed while it removed has left. */
static void clear_ended(void)
{
	char prefix[TPCK_PATH_MAX], path[TPCK_PATH_MAX + 300], *name;
	struct dirent *entry;
	DIR *folder;

	if (ended_prefix(prefix, sizeof prefix))
		return;
	name = strrchr(prefix, '/') + 1;
	snprintf(path, sizeof path, "%.*s", (int)(name - prefix), prefix);
	folder = opendir(path);
	while (folder && (entry = readdir(folder)))
		if (strncmp(entry->d_name, name, strlen(name)) == 0) {
			snprintf(path, sizeof path, "%.*s%s", (int)(name - prefix), prefix, entry->d_name);
			(void)tpck_folder_remove(path);
		}
	if (folder)
		closedir(folder);
}

static void leave(void)
{
	loop_stop();
	if (files_left() || agent.stopping)
		return;
	keep_log();
	remove_memory();
}

/* The program's soft limits are not meant for what goes on when it has ended. What is beyond a hard one fails, and is said. */
static void raise_limits(void)
{
	static const int of[] = {RLIMIT_FSIZE, RLIMIT_CPU, RLIMIT_NOFILE};
	struct rlimit limit;

	signal(SIGXFSZ, SIG_IGN);
	signal(SIGXCPU, SIG_IGN);
	for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
		if (getrlimit(of[i], &limit) || limit.rlim_cur == limit.rlim_max)
			continue;
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(of[i], &limit);
	}
}

/* One that mpirun has started must not return from main: what MPI does then may wait for the others. */
static void *end_anyway(void *unused)
{
	(void)unused;
	usleep(FINISH_US);
	_exit(0);
}

static void end_launched(bool well)
{
	pthread_t thread;

	if (well && !pthread_create(&thread, NULL, end_anyway, NULL))
		peers_finish();
	/* mpirun is to end otherwise than well: then it is called again. */
	_exit(agent.gathering);
}

/* What a thread is at, as writing to a store that does not answer, is not waited for longer than mpirun waits for those that it ends. */
static void *end_gathering(void *unused)
{
	(void)unused;
	usleep(GATHER_US);
	_exit(1);
}

/* The agent that is here was started for a program while those of mpirun's were gone, or by an mpirun that has lost it. It
 * leaves all that it has; told twice it does not wait for disks. */
static int take_over(struct tpck_error *err)
{
	uint64_t now = tpck_clock_monotonic_ns(), until = now + TAKE_OVER_NS, tell = now;
	int lock;

	/* Often: the program that it serves starts another one as soon as it is gone. */
	while ((lock = try_lock(err)) == -EAGAIN && now < until) {
		if (now >= tell) {
			tell_to_end();
			tell = now + TELL_AGAIN_NS;
		}
		usleep(500);
		now = tpck_clock_monotonic_ns();
	}
	return lock == -EAGAIN ? tpck_error_set(err, EBUSY, "waiting for the agent that holds %s", home.folder) : lock;
}

static int set_up(const char *job, struct tpck_error *err)
{
	char shm[TPCK_PATH_MAX];
	int rc;

	tpck_settings_read(&home.settings, environ);
	if (!job)
		job = home.settings.job;
	if (!tpck_job_name_valid(job))
		return tpck_error_set(err, EINVAL, "using '%.100s' as a job's name", job);
	snprintf(home.job, sizeof home.job, "%.200s", job);
	job = home.job;
	tpck_settings_shm(&home.settings, shm, sizeof shm);
	if (tpck_path_join(home.folder, sizeof home.folder - 64, shm, job))
		return tpck_error_set(err, ENAMETOOLONG, "using %s", shm);
	tpck_path_join(home.socket_path, sizeof home.socket_path, home.folder, "agent.sock");
	rc = check_memory_folder(shm, TPCK_DOOR_ABOVE | TPCK_DOOR_STICKY, err);
	if (!rc)
		rc = check_memory_folder(home.folder, 0, err);
	if (!rc)
		rc = tpck_tiers_open(&home.tiers, &home.settings, job, TPCK_WRITER_AUTO, err);
	for (size_t i = 0; i < home.tiers.count; i++)
		home.tiers.tier[i]->own_only = true;
	home.tiers.complain = trouble_complain;
	home.tier = home.tiers.tier[0];
	return rc;
}

static int check_launch(bool foreground, struct tpck_error *err)
{
	const char *here = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");

	const char *ulfm = getenv("OMPI_MCA_mpi_ft_enable");

	agent.launched = peers_launched(foreground);
	agent.together = agent.launched && !(ulfm && atoi(ulfm));
	if (agent.launched && here && atoi(here) > 1)
		return tpck_error_set(err, EINVAL, "mpirun has started %s agents on this node, which is to have one (--map-by ppr:1:node)", here);
	return 0;
}

/* An agent that was itself preloaded would carry the library for nothing. */
static void shed_preload(char **argv)
{
	if (!getenv("LD_PRELOAD"))
		return;
	unsetenv("LD_PRELOAD");
	execv("/proc/self/exe", argv);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"job", required_argument, NULL, 'j'}, {"foreground", no_argument, NULL, 'f'},
		{"help", no_argument, NULL, 'h'}, {"version", no_argument, NULL, 'v'}, {NULL, 0, NULL, 0},
	};
	struct tpck_error err = {0};
	const char *job = NULL;
	bool foreground = false;
	int option, lock, rc;
	pthread_t thread;

	shed_preload(argv);
	while ((option = getopt_long(argc, argv, "j:fhv", options, NULL)) != -1) {
		if (option == 'j') {
			job = optarg;
		} else if (option == 'f') {
			foreground = true;
		} else if (option == 'h' || option == 'v') {
			if (option == 'h')
				usage(stdout);
			else
				puts("transpckptd " PACKAGE_VERSION);
			return 0;
		} else {
			usage(stderr);
			return 2;
		}
	}
	syscall(SYS_close_range, 3, ~0u, 0);
	umask(0077);
	raise_limits();
	if (!foreground)
		detach();
	rc = set_up(job, &err);
	if (!rc)
		rc = check_launch(foreground, &err);
	lock = rc ? rc : take_lock(&err);
	if (lock == -EALREADY && agent.launched)
		lock = take_over(&err);
	if (lock == -EALREADY) {
		report("ok");
		return 0;
	}
	rc = lock < 0 ? lock : 0;
	if (!rc) {
		redirect(foreground);
		if (!foreground && chdir("/"))
			tpck_log_warn("cannot change to /: %m");
		clear_ended();
		files_taken_over_by(copies_taken_over);
		files_told_to(own_saved);
		session_beyond = &beyond;
		launch_apart = &accord_apart;
		peers_carry(&copies_cargo);
		peers_heard_by(hearers, sizeof hearers / sizeof *hearers);
		rc = loop_begin(&agent, parts, sizeof parts / sizeof *parts, &err);
	}
	if (rc) {
		report(err.text);
		if (agent.launched)
			_exit(1);
		return 1;
	}
	peers_meet();
	report(foreground ? "" : "ok");
	loop_run();
	if (agent.gathering && !pthread_create(&thread, NULL, end_gathering, NULL))
		pthread_detach(thread);
	leave();
	if (agent.launched)
		end_launched(!agent.stopping);
	return 0;
}
