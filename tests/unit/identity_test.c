// SPDX-License-Identifier: Apache-2.0
/* What makes two starts the same program, and what does not: arguments, scripts, variables, however long they are. */
#include "config.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/digest.h"
#include "runtime/base/identity_names.h"
#include "runtime/engine/identity.h"
#include "tests/unit/store_tap.h"

#define check(good, what) tap_ok(good, what, NULL)

static uint8_t key[TPCK_KEY_BYTES] = "a key of a test";
static char one[TPCK_IDENTITY_MAX], two[TPCK_IDENTITY_MAX];
static char *program[] = {(char *)"python3", (char *)"train.py", (char *)"--lr", (char *)"0.1", NULL};
static char *variables[] = {(char *)"PATH=/bin", (char *)"OMP_NUM_THREADS=4", NULL};

static long make(char text[TPCK_IDENTITY_MAX], char *const *arguments, char *const *environment)
{
	return tpck_identity_make("j", 0, 1, arguments, environment, key, text, TPCK_IDENTITY_MAX);
}

/* Whether a start with these is the program of `program` and `variables`. */
static bool is_same(char *const *arguments, char *const *environment)
{
	long was = make(one, program, variables), is = make(two, arguments, environment);

	return was > 0 && was == is && memcmp(one, two, (size_t)was) == 0;
}

static void write_script(const char *name, const char *text)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		exit(99);
	close(fd);
}

static void test_arguments(void)
{
	char *const other[] = {program[0], program[1], program[2], (char *)"0.2", NULL}, *const less[] = {program[0], program[1], program[2], NULL};
	char *const joined[] = {program[0], program[1], (char *)"--lr 0.1", NULL}, *const broken[] = {program[0], program[1], (char *)"--lr\nargument 0.1", NULL};

	write_script("train.py", "print(1)\n");
	check(is_same(program, variables), "the same again");
	check(!is_same(other, variables) && !is_same(less, variables), "another argument, or one less");
	check(!is_same(joined, variables) && !is_same(broken, variables), "arguments that only read the same");
	make(two, program, variables);
	write_script("train.py", "print(2)\n");
	check(make(one, program, variables) > 0 && strcmp(one, two) != 0 && strstr(one, "script-digest "), "its script has been changed");
	write_script("train.py", "print(1)\n");
	check(make(one, program, variables) > 0 && strcmp(one, two) == 0, "and back");
}

static void test_variables(void)
{
	static const char *const nothing[] = {"HOSTNAME=b", "PWD=/", "SLURM_JOB_ID=7", "TERM=x", "_=/bin/x", "TRANSPCKPT_DIR=/x", "COLUMNS=80",
					      "MASTER_PORT=1"};
	static const char *const something[] = {"HOSTNAMES=b", "PWDX=1", "SLURPY=1", "A=", "Z=1", "_X=1", "CUDA_VISIBLE_DEVICES=1"};
	char *environment[] = {variables[1], variables[0], NULL, NULL};

	check(is_same(program, environment), "the order of variables");
	for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++) {
		environment[2] = (char *)nothing[i];
		check(is_same(program, environment), nothing[i]);
	}
	for (size_t i = 0; i < sizeof something / sizeof *something; i++) {
		environment[2] = (char *)something[i];
		check(!is_same(program, environment), something[i]);
	}
	environment[1] = (char *)"PATH=/sbin";
	environment[2] = NULL;
	check(!is_same(program, environment), "another value");
}

/* Which devices it gets is Slurm's choice, how many is the job's. */
/* Only so much of a value is kept that another one is noticed. */
static void test_secrets(void)
{
	char *secret[] = {(char *)"WANDB_API_KEY=sk-abcdef0123456789", (char *)"EMPTY=", (char *)"no_equals_sign_in_it", NULL};
	char *other[] = {(char *)"WANDB_API_KEY=sk-abcdef0123456780", (char *)"EMPTY=", (char *)"no_equals_sign_in_it", NULL};

	check(make(one, program, secret) > 0 && strstr(one, "environment WANDB_API_KEY=") && !strstr(one, "sk-") && !strstr(one, "no_equals"),
	      "a variable is kept by its name, and without its value");
	check(make(two, program, other) > 0 && strcmp(one, two) != 0, "another value is another program all the same");
}

/* Who reads the text cannot test guesses; who has another key knows which program it may be. */
static void test_keys(void)
{
	static const uint8_t other[TPCK_KEY_BYTES] = "another of that";
	char *secret[] = {(char *)"KEY=letmein", (char *)"MORE=letmein", NULL}, *changed[] = {(char *)"KEY=letmeout", (char *)"MORE=letmein", NULL};
	char *named[] = {(char *)"KEYS=letmein", (char *)"MORE=letmein", NULL};
	char plain[17], *at;
	uint64_t names;

	make(one, program, secret);
	names = tpck_identity_names(one);
	snprintf(plain, sizeof plain, "%016llx", (unsigned long long)tpck_digest64("letmein", 7, 0));
	check(!strstr(one, plain), "no digest that needs no key");
	at = strstr(one, "environment KEY=") + 16;
	check(memcmp(at, strstr(one, "environment MORE=") + 17, 16) != 0, "equal values of two variables do not show");
	tpck_identity_make("j", 0, 1, program, secret, other, two, sizeof two);
	check(strncmp(at, strstr(two, "environment KEY=") + 16, 16) != 0 && strcmp(strstr(one, "environment-key "), strstr(two, "environment-key ")) != 0,
	      "with another key there are other digests");
	check(tpck_identity_names(two) == names, "and the same names");
	check(make(two, program, changed) > 0 && strcmp(one, two) != 0 && tpck_identity_names(two) == names, "another value has the same names");
	check(make(two, program, named) > 0 && tpck_identity_names(two) != names, "another variable has not");
}

static void test_devices(void)
{
	char *first[] = {(char *)"CUDA_VISIBLE_DEVICES=0,1", (char *)"GPU_DEVICE_ORDINAL=0,1", NULL};
	char *second[] = {(char *)"CUDA_VISIBLE_DEVICES=2,3", (char *)"GPU_DEVICE_ORDINAL=2,3", NULL};
	char *fewer[] = {(char *)"CUDA_VISIBLE_DEVICES=2", (char *)"GPU_DEVICE_ORDINAL=2", NULL};
	char *chosen[] = {(char *)"CUDA_VISIBLE_DEVICES=2,3", (char *)"GPU_DEVICE_ORDINAL=0,1", NULL};

	make(one, program, first);
	check(make(two, program, second) > 0 && strcmp(one, two) == 0, "other devices by Slurm");
	check(make(two, program, fewer) > 0 && strcmp(one, two) != 0, "another number of them");
	check(make(two, program, chosen) > 0 && strcmp(one, two) != 0, "other devices by the user");
}

/* Nothing that is too long for the text is left out of it. */
static void test_long(void)
{
	enum { MANY = 3000, LONG = 5000 };
	static char texts[MANY][16], value[LONG + 8];
	static char *many[MANY + 1];
	char *longer[] = {value, NULL};
	bool all = true;

	for (unsigned i = 0; i < MANY; i++) {
		snprintf(texts[i], sizeof texts[i], "V%05u=value", i);
		many[i] = texts[i];
	}
	all = make(one, program, many) > 0 && strstr(one, " more, digest ");
	for (unsigned i = 0; i < MANY; i += 299) {
		texts[i][8] = 'x';
		all = all && make(two, program, many) > 0 && strcmp(one, two) != 0;
		texts[i][8] = 'a';
	}
	check(all && make(two, program, many) > 0 && strcmp(one, two) == 0, "each of very many variables counts");
	texts[MANY - 1][8] = 'x';
	check(make(two, program, many) > 0 && strcmp(one, two) != 0 && tpck_identity_names(one) == tpck_identity_names(two),
	      "values of those behind the list's end do not change its names");
	many[MANY - 1] = NULL;
	check(make(two, program, many) > 0 && strcmp(one, two) != 0, "and how many there are");
	memset(value, 'v', LONG);
	memcpy(value, "LONG=", 5);
	make(one, program, longer);
	value[LONG - 1] = 'w';
	check(make(two, program, longer) > 0 && strcmp(one, two) != 0, "the end of a long one counts");
	check(tpck_identity_make("j", 0, 1, program, longer, key, two, 100) < 0, "a text that does not fit is an error");
}

static void test_ranks(void)
{
	tpck_identity_make("j", 0, 2, program, variables, key, one, sizeof one);
	check(tpck_identity_make("j", 1, 2, program, variables, key, two, sizeof two) > 0 && strcmp(one, two) != 0, "another rank");
	check(tpck_identity_make("j", 0, 4, program, variables, key, two, sizeof two) > 0 && strcmp(one, two) != 0, "another number of ranks");
	check(tpck_identity_make("k", 0, 2, program, variables, key, two, sizeof two) > 0 && strcmp(one, two) != 0, "another job");
}

int main(void)
{
	static struct tpck_settings settings;
	char job[TPCK_JOB_MAX], again[TPCK_JOB_MAX], here[PATH_MAX];
	const char *folder = tap_folder("/tmp");

	if (chdir(folder) || !getcwd(here, sizeof here))
		return 99;
	check(tpck_identity_job(&settings, job) == 0 && strncmp(job, "identity_test-", 14) == 0 && strlen(job) == 22, "a job without a name gets one");
	check(strcmp(tpck_identity_folder(), here) == 0, "the folder that it was started in");
	if (chdir("/"))
		return 99;
	check(tpck_identity_job(&settings, again) == 0 && strcmp(job, again) == 0 && strcmp(tpck_identity_folder(), here) == 0, "wherever it goes");
	strcpy(settings.job, "mine/and yours");
	check(tpck_identity_job(&settings, again) == 0 && strncmp(again, "mine", 4) == 0 && !strchr(again, '/'), "one with a name has that, as a file's");
	if (chdir(folder))
		return 99;
	test_arguments();
	test_variables();
	test_secrets();
	test_keys();
	test_devices();
	test_long();
	test_ranks();
	unlink("train.py");
	rmdir(folder);
	return tap_done();
}
