export default {
  test: { globalSetup: 'serverlock-server/vitest', include: ['**/*.vitest.js'] },
};
