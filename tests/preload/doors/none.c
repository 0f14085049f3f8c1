/* SPDX-License-Identifier: Apache-2.0 */
/* Looks for a device on a machine that may have no driver, each way that programs do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int main(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW), *other = dlopen("libcuda.so", RTLD_NOW);
	int (*init)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
	int (*count)(int *) = driver ? (int (*)(int *))dlsym(driver, "cuDeviceGetCount") : NULL;
	int (*proc)(const char *, void **, int, unsigned long long, int *) =
		driver ? (int (*)(const char *, void **, int, unsigned long long, int *))dlsym(driver, "cuGetProcAddress_v2") : NULL;
	int n = -1, status = -1;
	void *found = NULL;

	printf("%s, %s\n", driver ? "a driver" : "no driver", other ? "another" : "no other");
	if (init)
		printf("cuInit %d\n", init(0));
	if (count)
		printf("cuDeviceGetCount %s\n", count(&n) ? "an error" : "no error");
	if (proc)
		printf("cuGetProcAddress_v2 %s %s\n", proc("cuInit", &found, 12000, 0, &status) ? "an error" : "no error",
		       found ? "something" : "nothing");
	printf("default %s\n", dlsym(RTLD_DEFAULT, "cuInit") ? "cuInit" : "nothing");
	return 0;
}
