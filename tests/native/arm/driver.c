// Prints the name of the kernels that dispatch chooses, or "none", and checks each of the set's
// kernels against plain loops.
#include "check.h"

int failures;

int main(void) {
  const struct kernels *set = kernels_in_use();
  printf("%s\n", set ? set->name : "none");
  if (!set) {
    CHECK(!qwink_kernels() && !qwink_kernels_supported(0), "no set is supported");
    CHECK(qwink_cheap_rows() == 0, "no set is supported");
    CHECK(qwink_choose_kernels("neon") == -1, "a set that the processor lacks was chosen");
    return failures != 0;
  }
  CHECK(!qwink_kernels_supported(1) && qwink_choose_kernels("avx2") == -1, "only one set is here");
  check_quantize(set);
  check_product8(set);
  check_product4(set);
  check_attention(set);
  return failures != 0;
}
