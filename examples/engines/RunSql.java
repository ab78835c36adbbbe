// Runs statements of Flink SQL in this process, from the last checkpoint if there is one.
//
//     java -cp 'JARS/*' RunSql.java FILE CHECKPOINTS NAME=VALUE...
//
// ${NAME} in FILE becomes VALUE.

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.regex.Pattern;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

public class RunSql {
    public static void main(String[] args) throws Exception {
        String text = Files.readString(Path.of(args[0])).replaceAll("(?m)--.*$", "");
        for (int i = 2; i < args.length; i++) {
            String[] pair = args[i].split("=", 2);
            text = text.replace("${" + pair[0] + "}", pair[1]);
        }
        Path checkpoints = Path.of(args[1]).toAbsolutePath();
        Files.createDirectories(checkpoints);
        TableEnvironment tables = TableEnvironment.create(EnvironmentSettings.inStreamingMode());
        tables.getConfig().set("execution.checkpointing.dir", checkpoints.toUri().toString());
        tables.getConfig().set("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        try (var files = Files.walk(checkpoints)) {
            files.filter(file -> file.endsWith("_metadata"))
                .max(Comparator.comparing(file -> file.toFile().lastModified()))
                .ifPresent(last -> tables.getConfig().set(
                    "execution.state-recovery.path", last.getParent().toUri().toString()));
        }
        var inserts = tables.createStatementSet();
        Pattern setting = Pattern.compile("SET '([^']*)' = '([^']*)'");
        for (String statement : text.split(";")) {
            String one = statement.strip();
            var found = setting.matcher(one);
            if (found.matches()) {
                tables.getConfig().set(found.group(1), found.group(2));
            } else if (one.startsWith("INSERT")) {
                inserts.addInsertSql(one);
            } else if (!one.isEmpty()) {
                tables.executeSql(one);
            }
        }
        inserts.execute().await();
    }
}
