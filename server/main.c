#include <stdio.h>

int main(void)
{
    puts("tokend " TOKEND_VERSION);
    return 0;
}
