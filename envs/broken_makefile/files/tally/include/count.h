#ifndef COUNT_H
#define COUNT_H

#include <stdio.h>

#include "table.h"

void count_words(FILE *file, struct table *table);
double entropy(const struct table *table);

#endif
