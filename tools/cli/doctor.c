/* SPDX-License-Identifier: Apache-2.0 */
/* transpckpt doctor: in plain words what this machine and these settings allow. */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <liburing.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "runtime/base/cgroup.h"
#include "runtime/base/file_system.h"
#include "runtime/base/tier_settings.h"
#include "runtime/peer/rendezvous.h"
#include "runtime/store/tiers.h"
#include "runtime/view/view.h"
#include "tools/cli/device/probe.h"
#include "tools/cli/doctor.h"
#include "tools/cli/inventory.h"

extern char **environ;

#ifdef HAVE_UCX
#define HAS_UCX true
#else
#define HAS_UCX false
#endif
#ifdef HAVE_SODIUM
#define HAS_SODIUM true
#else
#define HAS_SODIUM false
#endif
#ifdef HAVE_OPENMPI
#define HAS_OPENMPI true
#else
#define HAS_OPENMPI false
#endif

static const char usage[] =
	"usage: transpckpt doctor [--json] [--dir DIR]\n"
	"       transpckpt doctor --device [--wait SEC] [--json] [PROBE]...\n"
	"Says what this machine lacks, where things are kept, and every setting with its value.\n"
	"  --device    instead, tries what the library needs of the driver and of each device that\n"
	"              CUDA_VISIBLE_DEVICES leaves: all of it, or the probes of these names, which are\n"
	"              those of its lines\n"
	"  --wait SEC  how long each of these probes may take, 10 s if not said\n"
	"Exit status 1 if something stands in the way of snapshots.\n";

const char *const cli_finding_names[] = {"good", "note", "bad"};

void cli_find_names(struct examination *e, enum finding finding, const char *what, const char *text, json_object *names)
{
	e->bad = e->bad || finding == BAD;
	if (e->json) {
		json_object *row = json_object_new_object();

		json_object_object_add(row, "what", json_object_new_string(what));
		json_object_object_add(row, "finding", json_object_new_string(cli_finding_names[finding]));
		json_object_object_add(row, "text", json_object_new_string(text));
		if (e->devices && e->device >= 0)
			json_object_object_add(row, "device", json_object_new_int(e->device));
		if (names)
			json_object_object_add(row, "names", json_object_get(names));
		json_object_array_add(e->json, row);
	} else {
		if (e->devices > 1 && e->device >= 0)
			printf("%-4s  device %d%s%-18s %s\n", cli_finding_names[finding], e->device, strcmp(what, "device") ? ", " : "",
			       strcmp(what, "device") ? what : "", text);
		else
			printf("%-4s  %-18s %s\n", cli_finding_names[finding], what, text);
	}
}

void cli_find(struct examination *e, enum finding finding, const char *what, const char *format, ...)
{
	char text[1500];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	cli_find_names(e, finding, what, text, NULL);
}

/* The nearest folder of a path that is there. */
static void existing_part(const char *path, char *part, size_t size)
{
	snprintf(part, size, "%s", path);
	while (access(part, F_OK) != 0 && strrchr(part, '/') > part)
		*strrchr(part, '/') = '\0';
	if (access(part, F_OK) != 0)
		snprintf(part, size, part[0] == '/' ? "/" : ".");
}

static void examine_tier(struct examination *e, const char *path, const char *kind)
{
	struct tpck_file_system file_system = {.name = "an unknown file system"};
	char part[TPCK_PATH_MAX];
	struct statvfs space;
	struct stat status;
	bool known;

	existing_part(path, part, sizeof part);
	if (access(part, W_OK | X_OK) != 0) {
		cli_find(e, BAD, "store", "%s cannot be written: %s; %s. Set TRANSPCKPT_DIR", part, strerror(errno),
			 strcmp(path, e->cli->store) == 0 ? "checkpoints stay in memory" : "no checkpoints are copied there");
		return;
	}
	if (strcmp(part, path) == 0 && stat(path, &status) == 0 && status.st_uid != geteuid())
		cli_find(e, NOTE, "store", "%s belongs to user %u; jobs' folders in it are ours", path,
			 (unsigned)status.st_uid);
	known = tpck_file_system_of(path, &file_system);
	kind = tpck_tier_kind(kind, path);
	if (known && strcmp(file_system.name, "tmpfs") == 0)
		cli_find(e, NOTE, "store", "%s is on tmpfs: what is there does not survive the machine. Set TRANSPCKPT_DIR",
			 path);
	else
		cli_find(e, GOOD, "store", "%s, on %s: tier '%s', survives the loss of %s", path, file_system.name, kind,
			 strcmp(kind, "site") == 0 ? "a node" : "a process and a restart of this node, not of the node");
	if (statvfs(part, &space) == 0) {
		uint64_t free_bytes = (uint64_t)space.f_bavail * space.f_frsize;

		cli_find(e, free_bytes < (1ull << 30) ? NOTE : GOOD, "store space", "%s free", cli_bytes(free_bytes));
	}
}

static void examine_store(struct examination *e)
{
	char kind[TPCK_TIER_KIND], path[TPCK_PATH_MAX];

	for (unsigned t = 0; tpck_settings_tier(&e->cli->settings, t, kind, path, sizeof path); t++)
		examine_tier(e, path, kind);
}

static void examine_memory_tier(struct examination *e)
{
	const char *path = e->cli->shm;
	struct tpck_file_system file_system = {.name = "an unknown file system"};
	char part[TPCK_PATH_MAX];
	struct statvfs space;
	uint64_t size, free_bytes;

	existing_part(path, part, sizeof part);
	if (access(part, W_OK | X_OK) != 0) {
		cli_find(e, BAD, "memory tier", "%s cannot be written: %s. Set TRANSPCKPT_SHM", part, strerror(errno));
		return;
	}
	if (!tpck_file_system_of(part, &file_system) || strcmp(file_system.name, "tmpfs") != 0)
		cli_find(e, BAD, "memory tier", "%s is on %s, not on tmpfs: snapshots would wait for a disk", path,
			 file_system.name);
	if (statvfs(part, &space))
		return;
	size = (uint64_t)space.f_blocks * space.f_frsize;
	free_bytes = (uint64_t)space.f_bavail * space.f_frsize;
	/* Docker's default is 64 MiB. */
	cli_find(e, free_bytes < (256ull << 20) ? BAD : GOOD, "memory tier",
		 "%s: %s of %s free; at most %s are used (TRANSPCKPT_MEMORY)%s", path, cli_bytes(free_bytes), cli_bytes(size),
		 cli_bytes(e->cli->settings.memory),
		 size <= (64ull << 20) ? "; a container's default: start it with --shm-size" : "");
}

/* ---- the machine -------------------------------------------------------------------------- */

static void examine_container(struct examination *e)
{
	struct stat self, init;

	if (access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0)
		cli_find(e, NOTE, "container", "this is a container: its end takes the memory tier, the store is what stays");
	if (stat("/proc/self/ns/mnt", &self) == 0 && stat("/proc/1/ns/mnt", &init) == 0 && self.st_ino != init.st_ino)
		cli_find(e, NOTE, "/dev/shm",
			 "this process has its own mount namespace: a private /dev/shm ends with it (PrivateTmp, job_container)");
}

/* logind removes a user's files under /dev/shm when the last session ends, unless told not to. */
static void examine_logind(struct examination *e)
{
	const struct passwd *user = getpwuid(geteuid());
	char line[512], linger[300];
	bool removes = true;
	FILE *conf;

	if (access("/run/systemd/system", F_OK) != 0 || geteuid() < 1000)
		return;
	conf = fopen("/etc/systemd/logind.conf", "re");
	while (conf && fgets(line, sizeof line, conf))
		if (strncmp(line, "RemoveIPC=no", 12) == 0)
			removes = false;
	if (conf)
		fclose(conf);
	snprintf(linger, sizeof linger, "/var/lib/systemd/linger/%.200s", user ? user->pw_name : "");
	if (removes && access(linger, F_OK) != 0)
		cli_find(e, NOTE, "logind",
			 "RemoveIPC is on and user %s does not linger: logging out removes the memory tier (loginctl enable-linger)",
			 user ? user->pw_name : "?");
}

static void examine_io_uring(struct examination *e)
{
	struct rlimit limit;
	struct io_uring ring;
	int rc = io_uring_queue_init(8, &ring, 0);

	if (rc) {
		cli_find(e, NOTE, "io_uring", "refused (%s): the agent writes with threads", strerror(-rc));
	} else {
		io_uring_queue_exit(&ring);
		cli_find(e, GOOD, "io_uring", "allowed");
	}
	if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
		bool enough = limit.rlim_cur == RLIM_INFINITY ||
			      limit.rlim_cur >= (rlim_t)TPCK_WRITER_DEPTH * (4 << 20) || geteuid() == 0;

		cli_find(e, enough ? GOOD : NOTE, "RLIMIT_MEMLOCK", "%s%s",
			 limit.rlim_cur == RLIM_INFINITY ? "unlimited" : cli_bytes(limit.rlim_cur),
			 enough ? "" : ": io_uring writes from buffers that are not registered");
	}
}

static void examine_addresses(struct examination *e)
{
	int now = personality(0xffffffff);

	if (now < 0)
		cli_find(e, NOTE, "addresses", "personality() is refused: transpckpt run cannot switch randomisation off");
	else
		cli_find(e, GOOD, "addresses", "transpckpt run %s address randomisation",
			 e->cli->settings.aslr ? "keeps" : "switches off");
}

/* How agents of several nodes reach each other, where they are to. */
static void examine_transport(struct examination *e)
{
	const char *wanted = e->cli->settings.transport;
	bool mpi = strcmp(wanted, "mpi") == 0, built = mpi ? HAS_OPENMPI : HAS_UCX;
	const char *name = mpi ? "Open MPI" : "UCX", *file = mpi ? "libmpi.so.40" : "libucp.so.0";
	void *library;

	if (!e->cli->settings.peers.count)
		return;
	if (!HAS_SODIUM) {
		cli_find(e, NOTE, "peers", "built without libsodium: nodes work alone, without copies on others");
		return;
	}
	if (!mpi && strcmp(wanted, "ucx") != 0) {
		cli_find(e, GOOD, "peers", "agents reach each other over TCP%s",
			 strcmp(wanted, "auto") == 0 && HAS_OPENMPI ? ", or over MPI if mpirun starts them" : "");
		return;
	}
	library = built ? dlopen(file, RTLD_LAZY | RTLD_LOCAL) : NULL;
	if (!built)
		cli_find(e, NOTE, "peers", "built without %s: nodes work alone, without copies on others", name);
	else if (!library)
		cli_find(e, NOTE, "peers", "%s is missing (%s): nodes work alone, without copies on others", name, dlerror());
	else
		cli_find(e, GOOD, "peers", "agents reach each other over %s%s", name,
			 mpi ? ", if mpirun starts them" : "; whoever reaches its ports can end them");
	if (library)
		dlclose(library);
}

/* Each entry of TRANSPCKPT_NODES, as agents read it. */
static void examine_nodes(struct examination *e)
{
	char list[TPCK_SETTING_TEXT_MAX], *rest = list, *name, addresses[1024], *address, *lines;
	unsigned good = 0, bad = 0;
	const char *own = NULL;
	uint16_t port;

	snprintf(list, sizeof list, "%s", e->cli->settings.nodes);
	while ((name = strtok_r(rest, ", ", &rest))) {
		struct tpck_error err = {0};

		if (tpck_rendezvous_resolve(name, TPCK_PEERS_PORT, addresses, sizeof addresses, &port, &err)) {
			cli_find(e, NOTE, "TRANSPCKPT_NODES", "%s", err.text);
			bad++;
			continue;
		}
		good++;
		for (lines = addresses; (address = strtok_r(lines, "\n", &lines));)
			if (tpck_rendezvous_is_local(address))
				own = name;
	}
	if (!good && !bad)
		return;
	if (!e->cli->settings.peers.count)
		cli_find(e, NOTE, "TRANSPCKPT_NODES", "agents do not look for each other: TRANSPCKPT_PEERS is 0");
	else if (own)
		cli_find(e, GOOD, "TRANSPCKPT_NODES", "%u found, this node as %s", good, own);
	else if (good)
		cli_find(e, NOTE, "TRANSPCKPT_NODES", "%u found, and this node is not among them: others do not look for it", good);
}

/* ---- settings ----------------------------------------------------------------------------- */

static const char *value_of(const struct tpck_setting_row *row, const struct tpck_settings *settings)
{
	static char text[TPCK_SETTING_TEXT_MAX + 16];
	const void *field = (const char *)settings + row->offset;
	const struct tpck_interval *interval = field;
	const struct tpck_copies *copies = field;

	if (strcmp(row->type, "BYTES") == 0)
		snprintf(text, sizeof text, "%s", cli_bytes(*(const uint64_t *)field));
	else if (strcmp(row->type, "RATE") == 0)
		snprintf(text, sizeof text, *(const uint64_t *)field ? "%s/s" : "no limit", cli_bytes(*(const uint64_t *)field));
	else if (strcmp(row->type, "COUNT") == 0)
		snprintf(text, sizeof text, "%llu", (unsigned long long)*(const uint64_t *)field);
	else if (strcmp(row->type, "COPIES") == 0 && copies->data)
		snprintf(text, sizeof text, "%u+%u", copies->data, copies->parity);
	else if (strcmp(row->type, "COPIES") == 0)
		snprintf(text, sizeof text, "%llu", (unsigned long long)copies->count);
	else if (strcmp(row->type, "BOOL") == 0)
		snprintf(text, sizeof text, "%d", *(const bool *)field);
	else if (strcmp(row->type, "PERCENT") == 0)
		snprintf(text, sizeof text, "%g %%", *(const double *)field);
	else if (strcmp(row->type, "SECONDS") == 0)
		snprintf(text, sizeof text, "%g s", *(const double *)field);
	else if (strcmp(row->type, "INTERVAL") == 0)
		snprintf(text, sizeof text, interval->unit == TPCK_INTERVAL_AUTO ? "auto" : "%g%s", interval->count,
			 interval->unit == TPCK_INTERVAL_SECONDS ? "s" : "");
	else if (strcmp(row->type, "STRING") == 0 || strcmp(row->type, "PATH") == 0 || strcmp(row->type, "CHOICE") == 0)
		snprintf(text, sizeof text, "%s", (const char *)field);
	else
		snprintf(text, sizeof text, "a value of type %s", row->type);
	return text;
}

static void examine_settings(struct examination *e)
{
	json_object *rows = json_object_new_array();

	if (e->cli->complaints)
		cli_find(e, NOTE, "settings", "%d of the given settings are not used, see the lines above", e->cli->complaints);
	for (const struct tpck_setting_row *row = tpck_setting_rows; row->name; row++) {
		const char *given = getenv(row->name);
		const char *value = value_of(row, &e->cli->settings);

		if (e->json) {
			json_object *setting = json_object_new_object();

			json_object_object_add(setting, "name", json_object_new_string(row->name));
			json_object_object_add(setting, "value", json_object_new_string(value));
			json_object_object_add(setting, "environment", given ? json_object_new_string(given) : NULL);
			json_object_object_add(setting, "default", json_object_new_string(row->standard));
			json_object_array_add(rows, setting);
		} else {
			printf("      %-28s %s%s\n", row->name, value[0] ? value : "(default)",
			       given && given[0] ? "  (from the environment)" : "");
		}
	}
	if (e->json) {
		json_object *row = json_object_new_object();

		json_object_object_add(row, "what", json_object_new_string("settings"));
		json_object_object_add(row, "settings", rows);
		json_object_array_add(e->json, row);
	} else {
		json_object_put(rows);
	}
}

/* Whose files are taken, and who does things to them that nobody sees. */
static int examine_files(struct cli *cli, const char *job, void *context)
{
	char folder[TPCK_PATH_MAX];
	struct tpck_view *view;
	int32_t pid;

	if (tpck_path_join(folder, sizeof folder, cli->shm, job) || tpck_view_map(folder, false, &view))
		return 0;
	pid = atomic_load(&view->ring);
	if (pid && tpck_view_process_started(pid))
		cli_find(context, NOTE, "files",
			 "process %d of job %s uses io_uring: what it opens, closes and renames by that is not seen, and may be at its path before what it has closed otherwise",
			 pid, job);
	tpck_view_unmap(view);
	return 0;
}

/* ---- twins -------------------------------------------------------------------------------- */

/* Memory of a process that is nobody else's; 0: nobody says. */
static uint64_t own_memory(int pid)
{
	char path[64], line[200];
	uint64_t kib = 0, value;
	FILE *status;

	snprintf(path, sizeof path, "/proc/%d/status", pid);
	status = fopen(path, "re");
	while (status && fgets(line, sizeof line, status))
		if (sscanf(line, "RssAnon: %" SCNu64, &value) == 1 || sscanf(line, "RssFile: %" SCNu64, &value) == 1)
			kib += value;
	if (status)
		fclose(status);
	return kib << 10;
}

/* What a process that runs has, its twin takes once more. */
static int examine_trainer(struct cli *cli, const char *job, void *context)
{
	struct inventory inventory;

	if (inventory_load(&inventory, cli, job, NULL))
		return 0;
	for (size_t i = 0; i < inventory.session_count; i++) {
		const struct tpck_session *session = inventory.sessions[i];

		if (inventory_alive(session))
			cli_find(context, GOOD, "twin", "process %d of job %s has %s of memory of its own: its twin takes as much", session->control->pid, job,
				 cli_bytes(own_memory(session->control->pid)));
	}
	inventory_free(&inventory);
	return 0;
}

/* Of how much memory Slurm ends a job. */
static void examine_slurm(struct examination *e)
{
	static const char *const limits[] = {"SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU"};

	for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
		const char *limit = getenv(limits[i]);

		if (limit && strtoull(limit, NULL, 10))
			cli_find(e, NOTE, "twin", "Slurm limits this job's memory (%s is %.40s MiB), and what a twin takes counts: ask for as much more, or the job is ended",
				 limits[i], limit);
	}
}

static void examine_twin(struct examination *e)
{
	struct tpck_cgroup group;
	char which[TPCK_CGROUP_PATH];

	if (strcmp(e->cli->settings.twin, "1") != 0 && strcmp(e->cli->settings.twin, "2") != 0)
		return;
	cli_find(e, GOOD, "twin",
		 "%stakes the program's memory and the processor time of its CPU side once more, a second context on the device (some hundreds of MiB there), and at most %s for files that the program writes",
		 e->cli->settings.twin[0] == '2' ? "each of two " : "", cli_bytes(e->cli->settings.twin_bytes));
	(void)cli_each_job(e->cli, examine_trainer, e);
	if (tpck_cgroup_of("", 0, &group) && tpck_cgroup_ends_together("", &group, which))
		cli_find(e, NOTE, "twin", "memory.oom.group of control group %s is 1: where memory is short the kernel ends the program together with its twin", which);
	examine_slurm(e);
}

static void examine_machine(struct examination *e)
{
	examine_memory_tier(e);
	examine_store(e);
	examine_container(e);
	examine_logind(e);
	examine_io_uring(e);
	(void)cli_each_job(e->cli, examine_files, e);
	examine_addresses(e);
	examine_transport(e);
	examine_nodes(e);
	examine_twin(e);
	examine_settings(e);
}

int verb_doctor(int argc, char **argv)
{
	struct examination e = {0};
	struct cli cli;
	int rc;

	/* One of the processes that --device starts. */
	if (argc == 4 && strcmp(argv[1], PROBE_WORD) == 0)
		return probe_main(argv[2], argv[3]);
	rc = cli_options(&cli, argc, argv, usage, CLI_OWN_DEVICE);
	if (rc)
		return rc < 0 ? CLI_GOOD : rc;
	e.cli = &cli;
	if (cli.json)
		e.json = json_object_new_array();
	if (cli.settings.disable)
		cli_find(&e, BAD, "TRANSPCKPT_DISABLE", "is 1: everything is switched off");
	if (!cli.device)
		examine_machine(&e);
	else if (cli_examine_device(&e))
		return CLI_USAGE;
	if (e.json) {
		puts(json_object_to_json_string_ext(e.json, JSON_C_TO_STRING_PRETTY));
		json_object_put(e.json);
	}
	return e.bad ? CLI_BAD : CLI_GOOD;
}
