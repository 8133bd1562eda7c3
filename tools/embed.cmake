# Writes files as C arrays: cmake -DOUT=x.c -DFILES="a.css;b.js" -P embed.cmake
# gives `const char sb_a_css[]`, `const char sb_b_js[]`, which end with a 0.
set(text "/* Made by tools/embed.cmake. */\n#include \"report/page.h\"\n")
foreach(file ${FILES})
  get_filename_component(name ${file} NAME)
  string(REPLACE "." "_" name ${name})
  file(READ ${file} hex HEX)
  string(REGEX REPLACE "(..)" "0x\\1," hex "${hex}")
  string(REGEX REPLACE "([^\n]?)(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)"
         "\\1\\2\n" hex "${hex}")
  string(APPEND text "const char sb_${name}[] = {\n${hex}0};\n")
endforeach()
file(WRITE ${OUT} "${text}")
