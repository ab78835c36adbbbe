/* The clock of a host that is set wrong, for one process: preloaded, it adds to every reading of the wall clock.
   The file named by HOST_CLOCK holds how many microseconds, and may change at any time. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *ahead_us;

__attribute__((constructor)) static void map_file(void) {
  int file = open(getenv("HOST_CLOCK"), O_RDONLY);
  void *place = mmap(NULL, sizeof *ahead_us, PROT_READ, MAP_SHARED, file, 0);
  if (place == MAP_FAILED) abort(); /* a right clock would show nothing */
  close(file);
  ahead_us = place;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  if (syscall(SYS_clock_gettime, clock, now)) return -1;
  if (ahead_us && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    int64_t us = now->tv_sec * INT64_C(1000000) + now->tv_nsec / 1000 + *ahead_us;
    now->tv_sec = us / 1000000;
    now->tv_nsec = us % 1000000 * 1000;
  }
  return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec exact;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *now) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (now) *now = exact.tv_sec;
  return exact.tv_sec;
}
