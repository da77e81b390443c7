/*
 * File systems whose server does not answer. Whoever asks one for something sleeps until it does, and no signal ends that: were it
 * pid 1, in the middle of a seal, the whole workspace would stay frozen. So they are asked before, each by a thread of its own.
 */
#ifndef BUNSHIN_FORK_SILENT_H
#define BUNSHIN_FORK_SILENT_H

#include <stdbool.h>

#include "common/error.h"
#include "fork/freeze.h"

/* Asks all that the workspace sees, and waits for a while. True: some say nothing. Costs one look at the mounts where there are none. */
bool silent_look(int proc);
/* An error that names the first process that uses what lies on one that said nothing. */
struct bunshin_error *silent_refuse(const struct frozen *frozen, int proc) MUST_CHECK;

#endif
