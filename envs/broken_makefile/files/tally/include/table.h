#ifndef TABLE_H
#define TABLE_H

#include <stddef.h>

#define SHOWN 10      /* lines of output */
#define MIN_LENGTH 3  /* shorter words are not counted */
#define MAX_LENGTH 63 /* longer words are cut */

struct entry {
    char word[MAX_LENGTH + 1];
    unsigned long count;
};

struct table {
    struct entry *entries;
    size_t used, size;
};

void table_add(struct table *table, const char *word);
void table_sort(struct table *table);
void table_free(struct table *table);

#endif
