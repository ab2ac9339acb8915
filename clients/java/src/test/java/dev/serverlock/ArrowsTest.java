package dev.serverlock;

import static com.tngtech.archunit.base.DescribedPredicate.describe;
import static com.tngtech.archunit.core.domain.JavaClass.Predicates.resideInAPackage;
import static com.tngtech.archunit.library.dependencies.SlicesRuleDefinition.slices;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.tngtech.archunit.base.DescribedPredicate;
import com.tngtech.archunit.core.domain.JavaClass;
import com.tngtech.archunit.core.domain.JavaClasses;
import com.tngtech.archunit.core.domain.JavaCodeUnit;
import com.tngtech.archunit.core.domain.JavaField;
import com.tngtech.archunit.core.domain.JavaModifier;
import com.tngtech.archunit.core.importer.ClassFileImporter;
import com.tngtech.archunit.library.Architectures;
import com.tngtech.archunit.library.dependencies.SliceAssignment;
import com.tngtech.archunit.library.dependencies.SliceIdentifier;
import java.io.InputStream;
import java.lang.module.ModuleDescriptor;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** Dependencies run one way, and nothing in the internal packages is part of the API. */
class ArrowsTest {
    private static final String ROOT = "dev.serverlock";
    private static final Path BUILT = Path.of(
            Locks.class.getProtectionDomain().getCodeSource().getLocation().getPath());
    private static final JavaClasses CLASSES = new ClassFileImporter().importPath(BUILT);

    /** What the internal packages know of the API: the types reported to callers. */
    private static final DescribedPredicate<JavaClass> REPORTS = describe(
            "reports",
            type -> type.getPackageName().equals(ROOT)
                    && (type.isAssignableTo(LockException.class)
                            || type.getName().matches("(\\[L)?dev\\.serverlock\\.(All)?Hooks(\\$.*)?")
                            || type.isEquivalentTo(Predecessor.class)));

    private static final DescribedPredicate<JavaClass> API =
            describe("API", type -> type.getPackageName().equals(ROOT) && !REPORTS.test(type));

    /** A layer, and the layers that it may use. */
    private record Layer(String name, DescribedPredicate<JavaClass> classes, String... below) {}

    private static Layer layer(String folder, String... below) {
        return new Layer(folder, resideInAPackage(ROOT + "." + folder), below);
    }

    private static final List<Layer> LAYERS = List.of(
            new Layer("reports", REPORTS),
            layer("spi"),
            layer("internal.runtime", "reports"),
            layer("internal.wire", "reports", "spi", "internal.runtime"),
            layer("internal.command", "reports", "spi", "internal.runtime", "internal.wire"),
            layer("internal.connection", "spi", "internal.runtime", "internal.wire"),
            layer("internal.hold", "reports", "spi", "internal.runtime", "internal.wire", "internal.command"),
            layer(
                    "internal.once",
                    "reports",
                    "spi",
                    "internal.runtime",
                    "internal.wire",
                    "internal.command",
                    "internal.hold"),
            layer(
                    "internal.attempt",
                    "reports",
                    "spi",
                    "internal.runtime",
                    "internal.wire",
                    "internal.command",
                    "internal.connection",
                    "internal.hold"),
            layer(
                    "internal",
                    "reports",
                    "spi",
                    "internal.runtime",
                    "internal.wire",
                    "internal.command",
                    "internal.connection",
                    "internal.hold",
                    "internal.once",
                    "internal.attempt"),
            new Layer(
                    "API",
                    API,
                    "reports",
                    "spi",
                    "internal",
                    "internal.runtime",
                    "internal.wire",
                    "internal.command",
                    "internal.hold",
                    "internal.once"),
            layer("jedis", "spi"),
            layer("lettuce", "spi"),
            layer("shedlock", "reports", "API"),
            layer("opentelemetry", "reports"),
            layer(
                    "testing",
                    "reports",
                    "spi",
                    "internal",
                    "internal.runtime",
                    "internal.wire",
                    "internal.command",
                    "internal.hold",
                    "API"));

    @Test
    void eachLayerUsesOnlyThoseBelowIt() {
        Architectures.LayeredArchitecture arrows =
                Architectures.layeredArchitecture().consideringOnlyDependenciesInLayers();
        for (Layer layer : LAYERS) {
            arrows = arrows.layer(layer.name()).definedBy(layer.classes());
        }
        for (Layer layer : LAYERS) {
            arrows = layer.below().length == 0
                    ? arrows.whereLayer(layer.name()).mayNotAccessAnyLayer()
                    : arrows.whereLayer(layer.name()).mayOnlyAccessLayers(layer.below());
        }
        arrows.check(CLASSES);
    }

    @Test
    void eachClassIsInALayerAndTheLayersAreInOrder() {
        Set<String> known = new TreeSet<>();
        for (Layer layer : LAYERS) {
            assertTrue(known.containsAll(Arrays.asList(layer.below())), layer.name() + " uses a layer above it");
            known.add(layer.name());
        }
        List<String> others = CLASSES.stream()
                .filter(type -> !type.getSimpleName().equals("module-info")
                        && !type.getSimpleName().equals("package-info")
                        && LAYERS.stream().noneMatch(layer -> layer.classes().test(type)))
                .map(JavaClass::getName)
                .toList();
        assertEquals(List.of(), others);
    }

    @Test
    void internalClassesHaveNoCircularDependencies() {
        SliceAssignment byFile = new SliceAssignment() {
            @Override
            public String getDescription() {
                return "internal classes";
            }

            @Override
            public SliceIdentifier getIdentifierOf(JavaClass type) {
                return type.getPackageName().startsWith(ROOT + ".internal")
                        ? SliceIdentifier.of(type.getName().replaceAll("\\$.*", ""))
                        : SliceIdentifier.ignore();
            }
        };
        slices().assignedFrom(byFile).should().beFreeOfCycles().check(CLASSES);
    }

    @Test
    void noPublicSignatureHasAnInternalType() {
        List<String> leaks = CLASSES.stream()
                .filter(type -> isVisible(type) && !isInternal(type))
                .flatMap(type -> Stream.concat(
                                Stream.concat(
                                        type.getAllRawSuperclasses().stream(), type.getAllRawInterfaces().stream()),
                                Stream.concat(
                                        type.getFields().stream()
                                                .filter(field -> isVisible(field.getModifiers()))
                                                .map(JavaField::getRawType),
                                        type.getCodeUnits().stream()
                                                .filter(unit -> isVisible(unit.getModifiers()))
                                                .flatMap(ArrowsTest::signature)))
                        .filter(ArrowsTest::isInternal)
                        .map(leak -> type.getName() + ": " + leak.getName()))
                .toList();
        assertEquals(List.of(), leaks);
    }

    private static Stream<JavaClass> signature(JavaCodeUnit unit) {
        return Stream.of(
                        unit.getReturnType().getAllInvolvedRawTypes().stream(),
                        unit.getParameterTypes().stream().flatMap(type -> type.getAllInvolvedRawTypes().stream()),
                        unit.getExceptionTypes().stream())
                .flatMap(types -> types);
    }

    private static boolean isVisible(JavaClass type) {
        return isVisible(type.getModifiers())
                && type.getEnclosingClass().map(ArrowsTest::isVisible).orElse(true);
    }

    private static boolean isVisible(Set<JavaModifier> modifiers) {
        return modifiers.contains(JavaModifier.PUBLIC) || modifiers.contains(JavaModifier.PROTECTED);
    }

    private static boolean isInternal(JavaClass type) {
        return type.getPackageName().startsWith(ROOT + ".internal");
    }

    @Test
    void theModuleExportsThePackagesOfTheApi() throws Exception {
        ModuleDescriptor module;
        try (InputStream file = Files.newInputStream(BUILT.resolve("module-info.class"))) {
            module = ModuleDescriptor.read(file);
        }
        Set<String> exported = new TreeSet<>();
        module.exports().forEach(export -> exported.add(export.source()));
        Set<String> wanted = new TreeSet<>();
        CLASSES.stream().filter(type -> !isInternal(type)).forEach(type -> wanted.add(type.getPackageName()));
        wanted.remove(""); // the descriptor itself
        assertEquals(wanted, exported);
        assertEquals(ROOT, module.name());
    }
}
