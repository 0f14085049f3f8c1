/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: every type with good and bad values, what beats what, one clear line for each mistake. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/file_system.h"
#include "runtime/base/log.h"
#include "runtime/base/settings.h"
#include "runtime/base/tier_settings.h"
#include "tests/unit/store_tap.h"

#define is_true(good) tap_ok(good, #good, "")

static const struct tpck_setting_row *row(const char *name)
{
	for (const struct tpck_setting_row *r = tpck_setting_rows; r->name; r++)
		if (strcmp(r->name + strlen("TRANSPCKPT_"), name) == 0)
			return r;
	printf("Bail out! no setting %s\n", name);
	exit(1);
}

/* Every text is refused, and leaves the field as it was. */
static bool refuses(const char *name, const char *const *texts)
{
	static struct tpck_settings settings, before;

	memset(&settings, 0x5a, sizeof settings);
	before = settings;
	for (; *texts; texts++)
		if (tpck_settings_parse(row(name), *texts, &settings) != -EINVAL ||
		    memcmp(&settings, &before, sizeof before) != 0) {
			printf("# %s takes '%s'\n", name, *texts);
			return false;
		}
	return true;
}
#define REFUSES(name, ...) \
	tap_ok(refuses(name, (const char *const[]){__VA_ARGS__, NULL}), name " refuses what it is not", "")

static struct tpck_settings parsed;
#define TAKES(name, text, check) \
	tap_ok(tpck_settings_parse(row(name), text, &parsed) == 0 && (check), name "=" text, "")

static void test_types(void)
{
	double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
	static char at_limit[TPCK_SETTING_TEXT_MAX], beyond[TPCK_SETTING_TEXT_MAX + 1];

	TAKES("KEEP", "0", parsed.keep == 0);
	TAKES("KEEP", "12", parsed.keep == 12);
	REFUSES("KEEP", "", "banana", "-1", "3x", "3 ", "2.5", "nan", "inf", "1e30");
	TAKES("LOG_BYTES", "0", parsed.log_bytes == 0);
	TAKES("LOG_BYTES", "1000", parsed.log_bytes == 1000);
	TAKES("LOG_BYTES", "512M", parsed.log_bytes == 512ull << 20);
	TAKES("LOG_BYTES", "512m", parsed.log_bytes == 512ull << 20);
	TAKES("LOG_BYTES", "2GiB", parsed.log_bytes == 2ull << 30);
	TAKES("LOG_BYTES", "3KB", parsed.log_bytes == 3072);
	TAKES("LOG_BYTES", "1.5T", parsed.log_bytes == 3ull << 39);
	TAKES("MEMORY", "25%", parsed.memory <= (uint64_t)(memory / 4) && parsed.memory >= (uint64_t)(memory / 4) - 1);
	TAKES("PEER_BANDWIDTH", "0", parsed.peer_bandwidth == 0);
	TAKES("PEER_BANDWIDTH", "100M", parsed.peer_bandwidth == 100ull << 20);
	REFUSES("PEER_BANDWIDTH", "", "50%", "fast", "-1", "1G/s");
	REFUSES("LOG_BYTES", "", "banana", "-1", "5X", "5GX", "5 G", "5 ", "5 B", "101%", "G", "nan", "5%%", "5GiBB");
	TAKES("OVERHEAD", "0", parsed.overhead == 0);
	TAKES("OVERHEAD", "2.5", parsed.overhead == 2.5);
	TAKES("OVERHEAD", "2.5%", parsed.overhead == 2.5);
	REFUSES("OVERHEAD", "", "banana", "-1", "101", "5x", "nan");
	TAKES("EXIT_WAIT_SEC", "0.5", parsed.exit_wait_sec == 0.5);
	TAKES("EXIT_WAIT_SEC", "30s", parsed.exit_wait_sec == 30);
	REFUSES("EXIT_WAIT_SEC", "", "banana", "-1", "5m", "5 s", "nan", "inf");
	TAKES("INTERVAL", "auto", parsed.interval.unit == TPCK_INTERVAL_AUTO);
	TAKES("INTERVAL", "7", parsed.interval.unit == TPCK_INTERVAL_ITERATIONS && parsed.interval.count == 7);
	TAKES("INTERVAL", "7s", parsed.interval.unit == TPCK_INTERVAL_SECONDS && parsed.interval.count == 7);
	TAKES("INTERVAL", "0.5s", parsed.interval.unit == TPCK_INTERVAL_SECONDS && parsed.interval.count == 0.5);
	REFUSES("INTERVAL", "", "banana", "0", "-1", "autos", "7m", "s", "7ss", "nan");
	TAKES("DISABLE", "1", parsed.disable);
	TAKES("DISABLE", "0", !parsed.disable);
	REFUSES("DISABLE", "", "yes", "true", "2", "01", "banana");
	TAKES("PEERS", "3", parsed.peers.count == 3 && !parsed.peers.data);
	TAKES("PEERS", "4+2", parsed.peers.count == 3 && parsed.peers.data == 4 && parsed.peers.parity == 2);
	TAKES("PEERS", "0", !parsed.peers.count && !parsed.peers.data);
	REFUSES("PEERS", "", "-1", "1.5", "4+", "+2", "4+0", "1+1", "30+3", "4 + 2", "4+-2", "4+2+1", "4+2x", "4+1.5", "banana");
	TAKES("BACKPRESSURE", "stall", strcmp(parsed.backpressure, "stall") == 0);
	TAKES("BACKPRESSURE", "skip", strcmp(parsed.backpressure, "skip") == 0);
	REFUSES("BACKPRESSURE", "", "s", "stal", "stalls", "skip|stall", "kip", "banana");
	memset(at_limit, 'x', sizeof at_limit - 1);
	memset(beyond, 'x', sizeof beyond - 1);
	TAKES("DIR", "node:/a b,site:/c", strcmp(parsed.dir, "node:/a b,site:/c") == 0);
	is_true(tpck_settings_parse(row("SHM"), at_limit, &parsed) == 0 && strcmp(parsed.shm, at_limit) == 0);
	is_true(tpck_settings_parse(row("SHM"), beyond, &parsed) == -EINVAL);
	is_true(tpck_settings_parse(row("JOB"), beyond, &parsed) == -EINVAL);
}

static void test_standards(void)
{
	struct tpck_settings standard;
	bool good = true, unique = true, known = true;
	static const char *const types[] = {"STRING", "PATH", "BOOL", "COUNT", "COPIES", "BYTES", "RATE", "PERCENT", "SECONDS", "INTERVAL", "CHOICE"};

	for (const struct tpck_setting_row *r = tpck_setting_rows; r->name; r++) {
		bool found = false;

		good &= strncmp(r->name, "TRANSPCKPT_", 11) == 0 && r->help[0] && !tpck_settings_parse(r, r->standard, &standard);
		good &= (strcmp(r->type, "CHOICE") == 0) == (r->choices != NULL);
		for (size_t t = 0; t < sizeof types / sizeof *types; t++)
			found |= strcmp(r->type, types[t]) == 0;
		known &= found;
		for (const struct tpck_setting_row *other = r + 1; other->name; other++)
			unique &= strcmp(r->name, other->name) != 0;
	}
	tap_ok(good, "every default is a value of its type, every row has help", "");
	tap_ok(unique, "no name has two rows", "");
	tap_ok(known, "every type is known", "a new one: doc/hacking.md, \"Add a setting\"");
}

/* ---- reading; complaints go to a file ---- */

static char folder[128], complaints_path[200], log_setting[256];

static char *said(void)
{
	static char text[8192];
	int fd = open(complaints_path, O_RDONLY);
	ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof text - 1);

	text[got > 0 ? got : 0] = 0;
	if (fd >= 0)
		close(fd);
	return text;
}

static int lines(const char *text)
{
	int n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

static int read_with(struct tpck_settings *settings, const char *const *environment)
{
	if (truncate(complaints_path, 0) && errno != ENOENT)
		return -1;
	return tpck_settings_read(settings, (char *const *)(uintptr_t)environment);
}
#define READ(settings, ...) read_with(settings, (const char *const[]){log_setting, __VA_ARGS__, NULL})

static const char *conf(const char *text)
{
	static char pair[300];
	char path[200];
	FILE *file;

	snprintf(path, sizeof path, "%s/conf", folder);
	file = fopen(path, "w");
	if (!file || fputs(text, file) < 0 || fclose(file))
		exit(99);
	snprintf(pair, sizeof pair, "TRANSPCKPT_CONF=%s", path);
	return pair;
}

static const char *a_pipe(void)
{
	static char pair[300];

	snprintf(pair, sizeof pair, "TRANSPCKPT_CONF=%s/pipe", folder);
	if (mkfifo(strchr(pair, '=') + 1, 0600) && errno != EEXIST)
		exit(99);
	return pair;
}

/* A setting, a long remark, and a setting of 23 bytes at the very end. */
static const char *long_text(size_t bytes)
{
	static const char first[] = "TRANSPCKPT_KEEP=6\n#", last[] = "\nTRANSPCKPT_MILESTONE=2\n";
	static char text[20000];

	memset(text, 'x', bytes);
	memcpy(text, first, sizeof first - 1);
	memcpy(text + bytes - (sizeof last - 1), last, sizeof last);
	return text;
}

static void test_reading(void)
{
	static struct tpck_settings s, standard;
	char using[80];

	is_true(READ(&s, "PATH=/bin", "TRANSPCKPTX=1", "XTRANSPCKPT_KEEP=9") == 0);
	is_true(s.keep == 3 && s.interval.unit == TPCK_INTERVAL_AUTO && s.durable_interval.unit == TPCK_INTERVAL_AUTO && !s.disable);
	is_true(s.overhead == 1 && s.log_bytes == 1ull << 30 && strcmp(s.resume, "auto") == 0 && s.linger_sec == 600);
	is_true(READ(&s, "TRANSPCKPT_KEEP=7") == 0 && s.keep == 7 && !*said());
	is_true(READ(&s, conf("TRANSPCKPT_KEEP=8\nTRANSPCKPT_MILESTONE=5\n")) == 0 && s.keep == 8 && s.milestone == 5);
	tap_ok(READ(&s, conf("TRANSPCKPT_KEEP=8\nTRANSPCKPT_MILESTONE=5\n"), "TRANSPCKPT_KEEP=9") == 0 && s.keep == 9 &&
		       s.milestone == 5, "environment beats file beats default", said());
	tap_ok(READ(&s, "TRANSPCKPT_KEEP=9", conf("TRANSPCKPT_KEEP=8\n")) == 0 && s.keep == 9, "whatever their order", "");
	is_true(READ(&s, "TRANSPCKPT_KEEP=") == 0 && s.keep == 3);
	tap_ok(READ(&s, conf("# a remark\n\n  TRANSPCKPT_KEEP=4 \t\r\n\tTRANSPCKPT_DIR=/a b\nTRANSPCKPT_MILESTONE=6")) == 0 &&
		       s.keep == 4 && strcmp(s.dir, "/a b") == 0 && s.milestone == 6,
	       "remarks, blanks at both ends, no end of line", said());

	snprintf(using, sizeof using, "using %s\n", row("INTERVAL")->standard);
	tap_ok(READ(&s, "TRANSPCKPT_INTERVAL=banana") == 1 && lines(said()) == 1 &&
		       tpck_settings_parse(row("INTERVAL"), row("INTERVAL")->standard, &standard) == 0 &&
		       s.interval.unit == standard.interval.unit && strstr(said(), "TRANSPCKPT_INTERVAL=banana") &&
		       strstr(said(), using),
	       "a bad value: its default, and one line", said());
	tap_ok(READ(&s, "TRANSPCKPT_FOO=1") == 1 && lines(said()) == 1 && strstr(said(), "TRANSPCKPT_FOO is no setting"),
	       "an unknown name: one line", said());
	tap_ok(READ(&s, "TRANSPCKPT_KEEP") == 1 && lines(said()) == 1 && s.keep == 3, "no value: one line", said());
	tap_ok(READ(&s, "TRANSPCKPT_BACKPRESSURE=banana") == 1 && lines(said()) == 1 && strstr(said(), "skip|stall"),
	       "a bad choice: the line names the choices", said());
	tap_ok(READ(&s, conf("TRANSPCKPT_KEEP=banana\nnonsense\nTRANSPCKPT_BAR=1\nTRANSPCKPT_MILESTONE=2\n")) == 3 &&
		       lines(said()) == 3 && s.keep == 3 && s.milestone == 2 && strstr(said(), "/conf: "),
	       "a file with three mistakes: three lines that name it, the rest holds", said());
	tap_ok(READ(&s, conf("TRANSPCKPT_KEEP=6\n"), "TRANSPCKPT_KEEP=banana") == 1 && s.keep == 6,
	       "a bad value counts as not given", said());
	tap_ok(READ(&s, "TRANSPCKPT_CONF=/nonexistent/conf") == 1 && lines(said()) == 1 && strstr(said(), "/nonexistent/conf"),
	       "a file that is not there: one line", said());
	tap_ok(READ(&s, "TRANSPCKPT_CONF=/") == 1 && lines(said()) == 1 && s.keep == 3, "a folder for a file: one line",
	       said());
	alarm(60); /* without an end it would wait here */
	tap_ok(READ(&s, a_pipe()) == 1 && lines(said()) == 1 && s.keep == 3, "a pipe that nobody writes to: one line", said());
	tap_ok(READ(&s, "TRANSPCKPT_CONF=/dev/zero") == 1 && lines(said()) == 1 && s.keep == 3, "a device: one line", said());
	alarm(0);
	tap_ok(READ(&s, conf(long_text(16383))) == 0 && s.keep == 6 && s.milestone == 2, "a long file is read to its end",
	       said());
	tap_ok(READ(&s, conf(long_text(16384))) == 1 && lines(said()) == 1 && s.keep == 6 && s.milestone == 0 &&
		       strstr(said(), "/conf has more than 16383 bytes; what comes after byte 16361 is ignored"),
	       "one that is too long: one line, and no line of it by halves", said());
}

static void test_paths(void)
{
	struct tpck_settings s;
	char path[TPCK_SETTING_TEXT_MAX + 64], wanted[64], kind[TPCK_TIER_KIND];

	READ(&s, "TRANSPCKPT_DIR=/d", "TRANSPCKPT_SHM=/s");
	tpck_settings_store(&s, path, sizeof path);
	is_true(strcmp(path, "/d") == 0);
	tpck_settings_shm(&s, path, sizeof path);
	is_true(strcmp(path, "/s") == 0);
	is_true(READ(&s, "TRANSPCKPT_DIR=node:/nvme,,site:/lustre,/c") == 0);
	tpck_settings_store(&s, path, sizeof path);
	is_true(strcmp(path, "/nvme") == 0);
	is_true(tpck_settings_tier(&s, 0, kind, path, sizeof path) && !strcmp(path, "/nvme") && !strcmp(kind, "node"));
	is_true(tpck_settings_tier(&s, 1, kind, path, sizeof path) && !strcmp(path, "/lustre") && !strcmp(kind, "site"));
	is_true(tpck_settings_tier(&s, 2, kind, path, sizeof path) && !strcmp(path, "/c") && !kind[0]);
	is_true(!tpck_settings_tier(&s, 3, kind, path, sizeof path));
	tap_ok(READ(&s, "TRANSPCKPT_DIR=node:/a,/b,site:/a") == 1 && lines(said()) == 1 &&
		       strstr(said(), "site:/a is there twice") && strcmp(s.dir, "node:/a,/b") == 0,
	       "the same folder twice: one line", said());
	tap_ok(READ(&s, "TRANSPCKPT_DIR=/a,/b,/c,/d,/e,/f") == 1 && lines(said()) == 1 &&
		       strstr(said(), "only the first 4 tiers are used; '/e,/f' is not"),
	       "too many tiers: one line", said());
	tap_ok(READ(&s, "TRANSPCKPT_DIR=s3:bucket/a") == 1 && lines(said()) == 1 && strstr(said(), "'s3' is no kind of tier"),
	       "a kind of tier that there is not: one line", said());
	if (chdir("/usr/lib"))
		exit(99);
	READ(&s, "TRANSPCKPT_DIR=site:d,e", "TRANSPCKPT_SHM=./s");
	if (chdir("/"))
		exit(99);
	tpck_settings_store(&s, path, sizeof path);
	tap_ok(strcmp(path, "/usr/lib/d") == 0, "a path from the folder at the start", path);
	tap_ok(tpck_settings_tier(&s, 1, kind, path, sizeof path) && strcmp(path, "/usr/lib/e") == 0, "and the next one's", path);
	tpck_settings_shm(&s, path, sizeof path);
	tap_ok(strcmp(path, "/usr/lib/./s") == 0, "and the memory tier's", path);
	READ(&s, "X=");
	tpck_settings_shm(&s, path, sizeof path);
	snprintf(wanted, sizeof wanted, "/dev/shm/transpckpt-%u", (unsigned)getuid());
	is_true(strcmp(path, wanted) == 0);
	setenv("XDG_STATE_HOME", "/state", 1);
	setenv("HOME", "/home/x", 1);
	tpck_settings_store(&s, path, sizeof path);
	is_true(strcmp(path, "/state/transpckpt") == 0);
	setenv("XDG_STATE_HOME", "relative", 1);
	tpck_settings_store(&s, path, sizeof path);
	is_true(strcmp(path, "/home/x/.local/state/transpckpt") == 0);
}

static void test_logging(void)
{
	struct tpck_settings s;

	is_true(tpck_log_configure("banana") == -EINVAL && tpck_log_configure("") == -EINVAL);
	is_true(tpck_log_configure("warn:") == -EINVAL && tpck_log_configure("warning") == -EINVAL);
	is_true(tpck_log_configure("debug") == 0 && tpck_log_level() == TPCK_LOG_DEBUG);
	READ(&s, "X=");
	errno = EAGAIN;
	tpck_log_warn("%d: %m", 42);
	is_true(errno == EAGAIN && strcmp(said(), "transpckpt: 42: Resource temporarily unavailable\n") == 0);
	tpck_log_info("not at this level");
	is_true(lines(said()) == 1);
	tpck_log_warn("%2000d", 1);
	is_true(lines(said()) == 2 && strlen(said()) < 1100);
}

/* Numbers of linux/magic.h, and one that is nobody's. What is not known may be seen by other nodes or not. */
static void test_file_systems(void)
{
	static const struct {
		uint32_t type;
		bool site, known;
	} kinds[] = {{0xef53, false, true}, {0x2fc12fc1, false, true}, {0x858458f6, false, true}, {0x6969, true, true}, {0x65735546, true, true}, {0x12345678, false, false}};

	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		struct tpck_file_system found = tpck_file_system_by(kinds[i].type);

		is_true(found.site == kinds[i].site && found.known == kinds[i].known);
	}
}

int main(void)
{
	const char *tmp = getenv("TMPDIR");

	if (access("/etc/transpckpt.conf", F_OK) == 0) {
		printf("1..0 # SKIP /etc/transpckpt.conf would be read\n");
		return 77;
	}
	snprintf(folder, sizeof folder, "%s", tap_folder(tmp ? tmp : "/tmp"));
	snprintf(complaints_path, sizeof complaints_path, "%s/said", folder);
	snprintf(log_setting, sizeof log_setting, "TRANSPCKPT_LOG=warn:%s", complaints_path);
	test_types();
	test_standards();
	test_reading();
	test_paths();
	test_logging();
	test_file_systems();
	unlink(complaints_path);
	strcpy(strrchr(complaints_path, '/'), "/conf");
	unlink(complaints_path);
	strcpy(strrchr(complaints_path, '/'), "/pipe");
	unlink(complaints_path);
	rmdir(folder);
	return tap_done();
}
