/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that handle files of others, by the names of their executables. */
#include "config.h"

#include <string.h>

#include "runtime/base/layout.h"
#include "runtime/view/rules.h"

enum { NAME_MOST = 64 };

/* Interpreters that people write savers in (python, perl, lua, R, julia, node, java) are not among them. Links are followed: what people call vi is
 * vim.basic. */
static const char *const tools[] = {
	/* shells, and what has many tools in one */
	"sh", "bash", "dash", "zsh", "ksh", "mksh", "fish", "busybox", "toybox", "coreutils",
	/* copying */
	"cp", "mv", "ln", "install", "dd", "cat", "tee", "head", "tail", "split", "csplit", "sort", "sed", "gawk", "mawk", "original-awk", "patch", "rm",
	"rsync", "scp", "sftp", "sftp-server", "curl", "wget", "aria2c", "rclone", "s5cmd", "azcopy", "ssh",
	/* looking */
	"ls", "dir", "vdir", "du", "df", "stat", "tree", "file", "wc", "cmp", "diff", "grep", "less", "more", "cksum", "b2sum", "md5sum", "sha1sum",
	"sha256sum", "sha512sum",
	/* packing */
	"tar", "bsdtar", "cpio", "bsdcpio", "zip", "unzip", "gzip", "pigz", "bzip2", "pbzip2", "xz", "zstd", "lz4", "brotli", "7z", "7za", "7zr", "7zz", "ar",
	/* version control */
	"git", "git-remote-http", "git-lfs", "svn", "fossil", "jj",
	/* compilers and what builds with them */
	"make", "ninja", "cmake", "bazel", "ccache", "gcc", "g++", "cc1", "cc1plus", "collect2", "lto1", "lto-wrapper", "as", "ld", "gold", "lld", "mold",
	"clang", "clang++", "rustc", "cargo", "go", "compile", "link", "nvcc", "cicc", "ptxas", "fatbinary", "nvlink", "cudafe++", "strip", "objcopy",
	/* package managers */
	"dpkg", "dpkg-deb", "apt", "apt-get", "rpm", "dnf5", "pacman", "apk", "micromamba", "uv",
	/* editors */
	"vi", "vim", "nvim", "nano", "emacs", "ed", "ex", "micro", "hx", "joe",
	/* databases */
	"sqlite3", "postgres", "psql", "mysqld", "mariadbd", "mongod", "redis-server", "duckdb",
	/* converters */
	"ffmpeg", "magick", "pandoc", "jq", "sox",
	/* launchers */
	"srun", "sbatch", "mpirun", "mpiexec", "orterun", "orted", "prte", "prted", "prterun", "hydra_pmi_proxy", "env", "nohup", "timeout", "xargs", "find",
	"parallel", "sudo", "tmux", "screen",
};

static bool is_one(const char *name)
{
	for (size_t i = 0; i < sizeof tools / sizeof *tools; i++)
		if (strcmp(tools[i], name) == 0)
			return true;
	return false;
}

/* x86_64-linux-gnu-gcc-12, gcc-12, vim.basic, clang++-17, ld.bfd: the part that says what it is. */
TPCK_AT_START bool tpck_rules_tool(const char *program)
{
	const char *slash = strrchr(program, '/'), *name = slash ? slash + 1 : program, *dash;
	char short_name[NAME_MOST];
	size_t length = strlen(name);

	if (is_one(name))
		return true;
	if (length >= sizeof short_name)
		return false;
	strcpy(short_name, name);
	while (length && strchr("0123456789.-", short_name[length - 1]))
		short_name[--length] = '\0';
	if (is_one(short_name))
		return true;
	if (strchr(short_name, '.'))
		*strchr(short_name, '.') = '\0';
	dash = strrchr(short_name, '-');
	return is_one(dash && strstr(short_name, "linux") ? dash + 1 : short_name);
}
