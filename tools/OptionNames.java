import java.io.InputStream;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.Enumeration;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;

/** Prints the options that the classes of a JAR of Hudi declare: name, older names, default value and class, with tabs between. */
public class OptionNames {
  private static final String PROPERTY = "org.apache.hudi.common.config.ConfigProperty";

  public static void main(String[] arguments) throws Exception {
    byte[] mark = PROPERTY.replace('.', '/').getBytes(StandardCharsets.ISO_8859_1);
    try (JarFile jar = new JarFile(arguments[0])) {
      for (Enumeration<JarEntry> entries = jar.entries(); entries.hasMoreElements();) {
        JarEntry entry = entries.nextElement();
        String file = entry.getName();
        boolean isOwn = file.startsWith("org/apache/hudi/") && !file.startsWith("org/apache/hudi/org/");
        if (!isOwn || !file.endsWith(".class")) {
          continue;
        }
        try (InputStream stream = jar.getInputStream(entry)) {
          if (contains(stream.readAllBytes(), mark)) {
            printOptions(file.substring(0, file.length() - ".class".length()).replace('/', '.'));
          }
        }
      }
    }
  }

  private static boolean contains(byte[] bytes, byte[] part) {
    return new String(bytes, StandardCharsets.ISO_8859_1).contains(new String(part, StandardCharsets.ISO_8859_1));
  }

  private static void printOptions(String name) {
    Class<?> holder;
    Field[] fields;
    try {
      holder = Class.forName(name, false, OptionNames.class.getClassLoader());
      fields = holder.getDeclaredFields();
    } catch (LinkageError | ClassNotFoundException missing) { // a part of Hudi whose libraries are not in the JAR
      System.err.println(name + ": " + missing);
      return;
    }
    for (Field field : fields) {
      boolean isStatic = Modifier.isStatic(field.getModifiers());
      if (!field.getType().getName().equals(PROPERTY) || !isStatic && !name.endsWith("$")) {
        continue;
      }
      try {
        field.setAccessible(true);
        Object option = field.get(isStatic ? null : holder.getField("MODULE$").get(null));
        Class<?> type = field.getType();
        Object value = (Boolean) type.getMethod("hasDefaultValue").invoke(option) ? type.getMethod("defaultValue").invoke(option) : "";
        Object older = type.getMethod("getAlternatives").invoke(option);
        System.out.println(String.join("\t", String.valueOf(type.getMethod("key").invoke(option)),
            String.valueOf(older).replaceAll("[\\[\\] ]", ""), String.valueOf(value).replaceAll("\\s+", " "),
            holder.getSimpleName().replace("$", "")));
      } catch (ReflectiveOperationException | LinkageError failed) {
        System.err.println(name + "." + field.getName() + ": " + failed);
      }
    }
  }
}
