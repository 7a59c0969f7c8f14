/*
 * power.c -- see power.h. A thread samples the clock, which NVML gives as it is at the moment; energy is a
 * counter in millijoules, which the driver advances some ten times a second, so that a span should last a
 * second to be right within a few percent.
 */
#include "power.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "machine.h"

enum { CLOCK_OF_SMS = 1, SAMPLE_US = 10000 };

static struct {
    void *device; /* NULL: no NVML */
    int (*energy)(void *device, unsigned long long *millijoules);
    int (*clock)(void *device, int which, unsigned *mhz);
    pthread_t sampler;
    atomic_bool ends;
    unsigned long long from;
    double started_us, clocks; /* their sum */
    int samples;
} power;

bool power_open(const struct machine *m)
{
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*init)(void), (*find)(const char *bus, void **device);
    char bus[32];
    if (!lib || m->device_bus(bus, sizeof bus, 0)) return false;
    *(void **)&init = dlsym(lib, "nvmlInit_v2");
    *(void **)&find = dlsym(lib, "nvmlDeviceGetHandleByPciBusId_v2");
    *(void **)&power.energy = dlsym(lib, "nvmlDeviceGetTotalEnergyConsumption");
    *(void **)&power.clock = dlsym(lib, "nvmlDeviceGetClockInfo");
    if (!init || !find || !power.energy || !power.clock || init() || find(bus, &power.device))
        power.device = NULL;
    return power.device;
}

static void *sample(void *unused)
{
    (void)unused;
    while (!power.ends) {
        unsigned mhz;
        if (power.clock(power.device, CLOCK_OF_SMS, &mhz) == 0) power.clocks += mhz, power.samples++;
        nanosleep(&(struct timespec){.tv_nsec = SAMPLE_US * 1000}, NULL);
    }
    return NULL;
}

void power_begin(void)
{
    if (!power.device) return;
    power.clocks = power.samples = 0;
    power.ends = false;
    must(power.energy(power.device, &power.from), "nvmlDeviceGetTotalEnergyConsumption");
    power.started_us = clock_us();
    must(pthread_create(&power.sampler, NULL, sample, NULL), "pthread_create");
}

struct draw power_end(void)
{
    unsigned long long to;
    if (!power.device) return (struct draw){NAN, NAN};
    double us = clock_us() - power.started_us;
    must(power.energy(power.device, &to), "nvmlDeviceGetTotalEnergyConsumption");
    power.ends = true;
    pthread_join(power.sampler, NULL);
    return (struct draw){(double)(to - power.from) * 1e-3 / (us * 1e-6),
                         power.samples ? power.clocks / power.samples : NAN};
}
