// Writes grafana_escapes.json: how Grafana escapes each key, by its own package. To make it again, outside of
// the repository: npm install --ignore-scripts --legacy-peer-deps @grafana/prometheus
// then, from there: node PATH/grafana_escapes.mjs < keys.json > grafana_escapes.json
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const folder = join(process.cwd(), "node_modules/@grafana/prometheus");
const source = readFileSync(join(folder, "dist/esm/escaping.mjs"), "utf8");
// The module's only import is the configuration, which would load all of Grafana's page.
const alone = source.replace(/^import .*@grafana\/runtime.*$/m, "export const config = { featureToggles: {} };");
const place = join(process.cwd(), "escaping-alone.mjs");
writeFileSync(place, alone);
const grafana = await import(pathToFileURL(place));

const keys = JSON.parse(readFileSync(0, "utf8"));
const modes = {};
for (const special of [false, true]) {
  grafana.config.featureToggles.prometheusSpecialCharsInLabelValues = special;
  modes[special ? "special_characters" : "default"] = {
    one: keys.map((key) => grafana.interpolateQueryExpr(key, { multi: false, includeAll: false })),
    one_of_many: keys.map((key) => grafana.interpolateQueryExpr([key], { multi: true })),
    all: grafana.interpolateQueryExpr(keys, { multi: true }),
  };
}
const builder = {
  exact: keys.map(grafana.escapeLabelValueInExactSelector),
  pattern: keys.map(grafana.escapeLabelValueInRegexSelector),
};
const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
process.stdout.write(JSON.stringify({ version, keys, modes, builder }, null, 1) + "\n");
