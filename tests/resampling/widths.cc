/* widths.cc - the kernels of every width of vectors, on the same cells: prints
 * the first difference, and fails. */
#include <random>
#include <stdio.h>

#include "average.h"
#include "rank.h"

template <class Work> static int differs(const zs_block *b, const char *name) {
  const size_t size = (size_t)(b->count * b->lanes * b->item_size);
  static char wide[65536], half[65536], narrow[65536];
  Work::template run<64>(b, wide);
  Work::template run<32>(b, half);
  Work::template run<16>(b, narrow);
  if (!memcmp(wide, half, size) && !memcmp(wide, narrow, size))
    return 0;
  printf("%s: factor %d, %d lanes, %d outputs, skip %d, quarters %d\n", name,
         (int)b->factor, (int)b->lanes, (int)b->count, b->skip, b->quarters);
  return 1;
}

template <class T> static int check(const char *name) {
  static char scratch[ZS_SCRATCH * (ZS_BLOCK + 16)]
      __attribute__((aligned(64)));
  static T cells[8 * ZS_BLOCK] __attribute__((aligned(64)));
  std::mt19937 random(7);
  for (T &cell : cells) {
    cell = (T)((int)(random() % 9) - (zs_is_signed<T> ? 4 : 0));
    if (zs_is_float<T> && random() % 11 == 0)
      cell = (T)(zs_highest<T> - zs_highest<T>);
  }
  static const int factors[] = {1, 2, 3, 5, 8}, counts[] = {1, 3, 16, 37, 100};
  for (int factor : factors)
    for (int lanes = 1; lanes < 3; lanes++)
      for (int count : counts) {
        const char *rows[8];
        for (int r = 0; r < factor; r++)
          rows[r] = (const char *)(cells + r * ZS_BLOCK);
        for (int skip = 0; skip < (zs_is_float<T> ? 3 : 2); skip++) {
          const T nodata = 3, substitute = 4;
          int no_memory = 0;
          zs_block b = {rows, factor, factor, lanes,     count,      skip,
                        0,    0,      0,      sizeof(T), &no_memory, scratch};
          memcpy(&b.nodata, &nodata, sizeof nodata);
          memcpy(&b.substitute, &substitute, sizeof substitute);
          if (differs<zs_modes<zs_is_float<T>, zs_bits<T>>>(&b, name))
            return 1;
          if (differs<zs_averages<T>>(&b, name))
            return 1;
          for (b.quarters = 1; b.quarters < 4; b.quarters++)
            if (differs<zs_quantiles<T>>(&b, name))
              return 1;
        }
      }
  return 0;
}

int main() {
  return check<uint8_t>("u1") | check<int16_t>("i2") | check<uint16_t>("u2") |
         check<float>("f4") | check<double>("f8");
}
