#include "table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void table_add(struct table *table, const char *word)
{
    for (size_t i = 0; i < table->used; i++) {
        if (strcmp(table->entries[i].word, word) == 0) {
            table->entries[i].count++;
            return;
        }
    }
    if (table->used == table->size) {
        table->size = table->size ? 2 * table->size : 64;
        table->entries = realloc(table->entries, table->size * sizeof *table->entries);
        if (!table->entries) {
            perror("tally");
            exit(1);
        }
    }
    struct entry *entry = &table->entries[table->used++];
    strcpy(entry->word, word);
    entry->count = 1;
}

static int compare(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return strcmp(x->word, y->word);
}

void table_sort(struct table *table)
{
    if (table->used)
        qsort(table->entries, table->used, sizeof *table->entries, compare);
}

void table_free(struct table *table)
{
    free(table->entries);
}
