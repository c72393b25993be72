/* Uses the GPUs that a container has, through CUDA's driver API: prints the device nodes of NVIDIA, the
 * UUID of each GPU, and the sum of what the GPU wrote into its memory. Ends with 1 where a call fails.
 * `stay` has it wait for a signal at the end; `wild` has it write where it has no memory.
 *
 * The library is opened and not linked, as in programs that also run without a GPU. */

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 1 << 20, VALUE = 7 };

static const char WILD[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry wild() { .reg .u64 %a; mov.u64 %a, 8; st.global.u64 [%a], %a; ret; }\n";

static void *library;

static void *function(const char *name) {
  void *address = dlsym(library, name);
  if (address == NULL) {
    printf("libcuda.so.1 lacks %s\n", name);
    exit(1);
  }
  return address;
}

static void check(const char *name, int error) {
  if (error != 0) {
    printf("%s: error %d\n", name, error);
    exit(1);
  }
}

#define CALL(name, ...) check(#name, ((int (*)())function(#name))(__VA_ARGS__))

static void print_device_nodes(void) {
  DIR *folder = opendir("/dev");
  struct dirent *entry;
  while (folder != NULL && (entry = readdir(folder)) != NULL)
    if (strncmp(entry->d_name, "nvidia", 6) == 0) printf("node /dev/%s\n", entry->d_name);
}

static void print_uuid(const unsigned char *bytes) {
  printf("gpu GPU-");
  for (int i = 0; i < 16; i++) printf(i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", bytes[i]);
  printf("\n");
}

static void use(int index) {
  int device;
  unsigned char uuid[16];
  void *context;
  unsigned long long memory;
  static unsigned values[COUNT];
  unsigned long long sum = 0;

  CALL(cuDeviceGet, &device, index);
  CALL(cuDeviceGetUuid_v2, uuid, device);
  print_uuid(uuid);
  CALL(cuDevicePrimaryCtxRetain, &context, device);
  CALL(cuCtxSetCurrent, context);
  CALL(cuMemAlloc_v2, &memory, sizeof values);
  CALL(cuMemsetD32_v2, memory, (unsigned)VALUE, (size_t)COUNT);
  CALL(cuMemcpyDtoH_v2, values, memory, sizeof values);
  for (int i = 0; i < COUNT; i++) sum += values[i];
  printf("sum %llu\n", sum);
}

static void write_outside(void) {
  void *module, *kernel;
  CALL(cuModuleLoadData, &module, WILD);
  CALL(cuModuleGetFunction, &kernel, module, "wild");
  CALL(cuLaunchKernel, kernel, 1u, 1u, 1u, 1u, 1u, 1u, 0u, (void *)NULL, (void *)NULL, (void *)NULL);
  CALL(cuCtxSynchronize);
}

int main(int count, char **arguments) {
  int devices;
  setvbuf(stdout, NULL, _IOLBF, 0);
  print_device_nodes();
  library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) {
    printf("%s\n", dlerror());
    return 1;
  }
  CALL(cuInit, 0u);
  CALL(cuDeviceGetCount, &devices);
  for (int index = 0; index < devices; index++) use(index);
  if (count > 1 && strcmp(arguments[1], "wild") == 0) write_outside();
  if (count > 1 && strcmp(arguments[1], "stay") == 0) pause();
  return 0;
}
