// Repeats a macro for rows 0, 1, ... of a kernel. Each row's sums get names of their own so:
// compilers keep an array of them in memory.
#pragma once
#define EACH_1(F) F(0)
#define EACH_2(F) EACH_1(F) F(1)
#define EACH_3(F) EACH_2(F) F(2)
#define EACH_4(F) EACH_3(F) F(3)
#define EACH_5(F) EACH_4(F) F(4)
#define EACH_6(F) EACH_5(F) F(5)
