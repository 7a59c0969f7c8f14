/*
 * time.c -- the fake driver's streams, events and graphs: they exist, take no time, and do nothing. And
 * the linker's check that nothing is missing.
 */
#include "beside.h"
#include "driver.h"

static char thing; /* its address stands for every stream, event and graph */

CUresult cuStreamCreate(CUstream *out, unsigned flags)
{
    (void)flags;
    return *out = (CUstream)(void *)&thing, CUDA_SUCCESS;
}
CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority)
{
    return (void)priority, cuStreamCreate(out, flags);
}
CUresult cuStreamDestroy_v2(CUstream s) { return (void)s, CUDA_SUCCESS; }
CUresult cuStreamSynchronize(CUstream s) { return (void)s, CUDA_SUCCESS; }

CUresult cuEventCreate(CUevent *out, unsigned flags)
{
    (void)flags;
    return *out = (CUevent)(void *)&thing, CUDA_SUCCESS;
}
CUresult cuEventDestroy_v2(CUevent e) { return (void)e, CUDA_SUCCESS; }
CUresult cuEventRecord(CUevent e, CUstream s) { return (void)e, (void)s, CUDA_SUCCESS; }
CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags)
{
    return (void)s, (void)e, (void)flags, CUDA_SUCCESS;
}
CUresult cuEventQuery(CUevent e) { return (void)e, CUDA_SUCCESS; }
CUresult cuEventSynchronize(CUevent e) { return (void)e, CUDA_SUCCESS; }

CUresult cuEventElapsedTime_v2(float *ms, CUevent from, CUevent to)
{
    (void)from, (void)to;
    return *ms = 1, CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus *out)
{
    (void)s;
    return *out = CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) { return (void)mode, CUDA_SUCCESS; }

CUresult cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode mode)
{
    (void)s, (void)mode;
    return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream s, CUgraph *out)
{
    (void)s;
    return *out = (CUgraph)(void *)&thing, CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph g, unsigned long long flags)
{
    (void)g, (void)flags;
    return *out = (CUgraphExec)(void *)&thing, CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph g) { return (void)g, CUDA_SUCCESS; }
CUresult cuGraphUpload(CUgraphExec g, CUstream s) { return (void)g, (void)s, CUDA_SUCCESS; }
CUresult cuGraphLaunch(CUgraphExec g, CUstream s) { return (void)g, (void)s, CUDA_SUCCESS; }
CUresult cuGraphExecDestroy(CUgraphExec g) { return (void)g, CUDA_SUCCESS; }

/* A function that driver.h names and that is in none of these files ends here as an undefined symbol. */
#define ADDRESS(name) (void *)name,
void *const fake_functions[] = {DRIVER_FUNCTIONS(ADDRESS)};
