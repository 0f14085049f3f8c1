// SPDX-License-Identifier: Apache-2.0
// Preloaded into a trainer: at its first cudaMalloc it draws from everything that seeds programs, as they do it,
// and adds a line with all of it to $DRAWS, by system calls of its own, which nobody redirects. What a run draws that goes on
// where another was killed must be what that one drew.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>

#include "past_libc.h"

static std::string hex(const void *bytes, size_t count)
{
	std::string text;
	char two[3];

	for (size_t i = 0; i < count; i++) {
		snprintf(two, sizeof two, "%02x", ((const unsigned char *)bytes)[i]);
		text += two;
	}
	return text;
}

static void draw()
{
	const char *path = getenv("DRAWS");
	unsigned char bytes[16] = {0};
	std::string line;
	auto add = [&](const char *what, const void *from, size_t count) {
		line += std::string(what) + "=" + hex(from, count) + " ";
	};
	int fd, other;
	FILE *stream;
	time_t now;
	timeval tv;
	timespec ts;

	if (!path)
		return;
	if (getrandom(bytes, sizeof bytes, 0) == sizeof bytes)
		add("getrandom", bytes, sizeof bytes);
	if (getentropy(bytes, sizeof bytes) == 0)
		add("getentropy", bytes, sizeof bytes);
	fd = open("/dev/urandom", O_RDONLY);
	if (read(fd, bytes, sizeof bytes) == sizeof bytes)
		add("open", bytes, sizeof bytes);
	other = dup(fd);
	if (read(other, bytes, sizeof bytes) == sizeof bytes)
		add("dup", bytes, sizeof bytes);
	close(fd);
	close(other);
	fd = (int)past_libc(SYS_openat, AT_FDCWD, (long)"/dev/urandom", O_RDONLY | O_CLOEXEC, 0);
	fd = fcntl(fd, F_DUPFD, 100); // as one that was there before
	if (read(fd, bytes, sizeof bytes) == sizeof bytes)
		add("inherited", bytes, sizeof bytes);
	stream = fopen("/dev/urandom", "rb");
	if (fread(bytes, 1, 8, stream) == 8)
		add("fread", bytes, 8);
	for (int i = 0; i < 4; i++)
		bytes[i] = (unsigned char)getc(stream);
	add("getc", bytes, 4);
	line += "fileno=" + std::to_string(fileno(stream) > 2) + " ";
	fclose(stream);
	stream = fopen("/dev/random", "rb");
	setvbuf(stream, nullptr, _IONBF, 0);
	if (fread(bytes, 1, sizeof bytes, stream) == sizeof bytes)
		add("unbuffered", bytes, sizeof bytes);
	fclose(stream);
	std::ifstream in("/dev/urandom", std::ios::binary);
	if (in.read((char *)bytes, sizeof bytes))
		add("ifstream", bytes, sizeof bytes);
	std::random_device device, named("/dev/urandom");
	line += "device=" + std::to_string(device()) + "," + std::to_string(device()) + " named=" + std::to_string(named()) + " ";
	time(&now);
	gettimeofday(&tv, nullptr);
	clock_gettime(CLOCK_REALTIME, &ts);
	line += "time=" + std::to_string(now) + " tv=" + std::to_string(tv.tv_usec) + " ts=" + std::to_string(ts.tv_nsec);
	line += " chrono=" + std::to_string(std::chrono::system_clock::now().time_since_epoch().count()) + "\n";
	fd = (int)past_libc(SYS_openat, AT_FDCWD, (long)path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (past_libc(SYS_write, fd, (long)line.data(), (long)line.size(), 0) != (long)line.size())
		abort();
	past_libc(SYS_close, fd, 0, 0, 0);
}

extern "C" int cudaMalloc(void **at, size_t bytes)
{
	static int (*real)(void **, size_t);

	if (!real) {
		real = (int (*)(void **, size_t))dlsym(RTLD_NEXT, "cudaMalloc");
		draw();
	}
	return real(at, bytes);
}
