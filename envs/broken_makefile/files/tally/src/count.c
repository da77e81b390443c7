#include "count.h"

#include <ctype.h>
#include <math.h>

static void end_word(struct table *table, char *word, size_t *length)
{
    word[*length] = '\0';
    if (*length >= MIN_LENGTH)
        table_add(table, word);
    *length = 0;
}

void count_words(FILE *file, struct table *table)
{
    char word[MAX_LENGTH + 1];
    size_t length = 0;
    int c;

    while ((c = getc(file)) != EOF) {
        if (!isalpha(c))
            end_word(table, word, &length);
        else if (length < MAX_LENGTH)
            word[length++] = (char)tolower(c);
    }
    end_word(table, word, &length);
}

double entropy(const struct table *table)
{
    double total = 0, bits = 0;

    for (size_t i = 0; i < table->used; i++)
        total += (double)table->entries[i].count;
    for (size_t i = 0; i < table->used; i++) {
        double share = (double)table->entries[i].count / total;

        bits -= share * log2(share);
    }
    return bits;
}
