/*
 * The system calls that tools do not get, as a seccomp filter. Built once, used by start.c before exec and by the restorer
 * after a rebuild: what a fork may do is what its source might. `bounding` is the capabilities that there can be.
 */
#ifndef BUNSHIN_FORK_CONFINE_H
#define BUNSHIN_FORK_CONFINE_H

#include <linux/filter.h>
#include <stddef.h>
#include <stdint.h>

const struct sock_filter *confine_filter(uint64_t bounding);
size_t confine_filter_length(void);

#endif
