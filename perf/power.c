/*
 * power.c -- see power.h. A thread asks NVML every few milliseconds: the clock and what limits it are those
 * of the moment; energy is a counter in millijoules that the driver advances some ten times a second, so that
 * power is taken between the first advance in a span and the last one.
 */
#include "power.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "machine.h"

enum { CLOCK_OF_SMS = 1, SAMPLE_NS = 2000000 };

struct advance { /* of the energy counter */
    unsigned long long millijoules;
    double us;
};

static struct {
    void *device; /* NULL: no NVML */
    int (*energy)(void *device, unsigned long long *millijoules);
    int (*clock)(void *device, int which, unsigned *mhz);
    int (*reasons)(void *device, unsigned long long *bits);
    pthread_t sampler;
    atomic_bool ends;
    struct advance seen, first, last; /* `seen` is no advance: it is where the counter stood */
    int advances, samples;
    double clocks; /* their sum */
    unsigned long long limits;
    double least_mhz;
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
    *(void **)&power.reasons = dlsym(lib, "nvmlDeviceGetCurrentClocksThrottleReasons");
    if (!init || !find || !power.energy || !power.clock || !power.reasons) return false;
    if (init() || find(bus, &power.device)) power.device = NULL;
    return power.device;
}

static void sample_energy(void)
{
    struct advance now = {.us = clock_us()};
    if (power.energy(power.device, &now.millijoules) || now.millijoules == power.seen.millijoules) return;
    if (power.advances++ == 0) power.first = now;
    power.seen = power.last = now;
}

static void sample_clock(void)
{
    unsigned mhz;
    unsigned long long bits;
    if (power.clock(power.device, CLOCK_OF_SMS, &mhz) == 0) {
        power.clocks += mhz, power.samples++;
        power.least_mhz = fmin(power.least_mhz, mhz);
    }
    if (power.reasons(power.device, &bits) == 0) power.limits |= bits;
}

static void *sample(void *unused)
{
    (void)unused;
    while (!power.ends) {
        sample_energy();
        sample_clock();
        nanosleep(&(struct timespec){.tv_nsec = SAMPLE_NS}, NULL);
    }
    return NULL;
}

void power_begin(void)
{
    if (!power.device) return;
    power.clocks = power.samples = power.advances = 0;
    power.limits = 0;
    power.least_mhz = INFINITY;
    power.ends = false;
    must(power.energy(power.device, &power.seen.millijoules), "nvmlDeviceGetTotalEnergyConsumption");
    must(pthread_create(&power.sampler, NULL, sample, NULL), "pthread_create");
}

struct draw power_end(void)
{
    struct draw d = {NAN, NAN, NAN, 0};
    if (!power.device) return d;
    power.ends = true;
    pthread_join(power.sampler, NULL);
    if (power.advances > 1)
        d.watts = (double)(power.last.millijoules - power.first.millijoules) * 1e3 /
                  (power.last.us - power.first.us);
    if (power.samples) d.mhz = power.clocks / power.samples, d.least_mhz = power.least_mhz;
    d.limits = (unsigned)power.limits;
    return d;
}

void power_limits(unsigned limits, char *to, size_t size)
{
    static const struct {
        unsigned bit;
        const char *name;
    } known[] = {
        {0x4, "power"}, {0x8, "hardware"}, {0x20, "temperature"}, {0x40, "thermal"}, {0x80, "power brake"}};
    size_t at = 0;
    *to = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known && at < size; i++)
        if (limits & known[i].bit)
            at += (size_t)snprintf(to + at, size - at, "%s%s", at ? ", " : "", known[i].name);
}
